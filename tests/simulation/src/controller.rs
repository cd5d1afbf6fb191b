//! The shell around the core under test, small: reads, steps, carries effects out one event at a time, stalls, crashes, leads and stops leading.

use std::{
    collections::{BTreeMap, VecDeque},
    rc::Rc,
    time::Duration,
};

use controller_core::{
    Summary, Surroundings,
    effect::Effect,
    process::{Answer, Call, Process},
    time::Time,
    view::{InstanceLook, PoolView, Read},
};

use crate::{
    effects,
    script::Sudden,
    seconds,
    state::State,
    view::{self, Looking},
    world::{Event, Happened, World},
};

/// A destructive effect is not carried out on a look that is older than this: the shell looks again.
pub const LOOK_FRESH: Duration = seconds(10);
/// A pool is looked at so often even if nothing happens.
const RESYNC: Duration = seconds(60);
/// A Lease that was not renewed for so long is taken over.
const LEASE: Duration = seconds(15);

/// One controller process, and its successors in the same place.
pub struct Controller {
    /// Which.
    pub id: usize,
    /// Which run: each start is another process.
    pub run: u32,
    /// It runs.
    pub up: bool,
    /// It leads, or thinks so.
    pub leads: bool,
    /// When it started to watch.
    pub watching_since: Time,
    /// What the core knows of the process.
    pub process: Process,
    /// What each pool's task does.
    pub tasks: Vec<Task>,
    /// What providers said of instances, by UID.
    pub instances: BTreeMap<String, InstanceLook>,
    /// An older copy of the state, and until when its watches show no other.
    pub stale: Option<(Box<State>, Time)>,
    /// Until when its watches stood still last.
    pub lagged_until: Time,
    /// What will befall it, and after how many more effects.
    pub accidents: Vec<(u32, Accident)>,
    /// Until when it stands still.
    pub stalled_until: Time,
    /// How far it believes the clock to be ahead, in milliseconds.
    pub error: i64,
    /// When it last compared clocks.
    pub measured_at: Time,
    /// Summaries of other clusters' pools.
    summaries: Vec<Option<Summary>>,
}

/// What befalls a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accident {
    /// It dies, before the effect or after it.
    Crash {
        /// After it: it was done, and nobody knows.
        after: bool,
    },
    /// It stands still.
    Stall {
        /// For so long.
        seconds: u32,
    },
    /// Something happens to what it works on.
    Suddenly(Sudden),
}

/// What one pool's task does.
#[derive(Clone, Debug, Default)]
pub struct Task {
    /// Where it is.
    pub doing: Doing,
    /// The next look is direct.
    pub directly: bool,
    /// When it will go on: an event that comes earlier than that was meant for an earlier plan.
    pub next: Time,
    /// The power call whose answer it waits for.
    pub awaits: Option<String>,
}

/// Where a task is.
#[derive(Clone, Debug, Default)]
pub enum Doing {
    /// Waits.
    #[default]
    Idle,
    /// Has looked, and will decide.
    Looked(Rc<PoolView>, Surroundings),
    /// Carries out a plan.
    Acts {
        /// The look that it rests on.
        view: Rc<PoolView>,
        /// When that was, truly.
        looked_at: Time,
        /// What is left.
        left: VecDeque<Effect>,
        /// When to look again.
        next: Option<Time>,
    },
}

impl Controller {
    /// A controller that did not start yet.
    #[must_use]
    pub fn new(id: usize) -> Self {
        Self {
            id,
            run: 0,
            up: false,
            leads: false,
            watching_since: Time::default(),
            process: Process::default(),
            tasks: Vec::new(),
            instances: BTreeMap::new(),
            stale: None,
            lagged_until: Time::default(),
            accidents: Vec::new(),
            stalled_until: Time::default(),
            error: 0,
            measured_at: Time::default(),
            summaries: Vec::new(),
        }
    }

    /// What it takes to be the time.
    #[must_use]
    pub fn believes(&self, now: Time) -> Time {
        Time::from_millis(now.millis().saturating_add_signed(self.error))
    }

    /// Compares its clock with the management API server's: the error is known, and gone.
    fn measure(&mut self, now: Time) {
        // The wall clock itself is never corrected; what is believed is wall clock plus offset.
        let wall_error = self.process.clock.offset.map_or(0, |(offset, _)| -offset) + self.error;
        let wall = Time::from_millis(now.millis().saturating_add_signed(wall_error));
        self.process.clock.measured(wall, now);
        (self.error, self.measured_at) = (0, now);
    }
}

/// A process starts, as a standby.
pub fn start(world: &mut World, who: usize, run: u32) {
    let (now, pools) = (world.now, world.state.pools.len());
    let Some(c) = world.controllers.get_mut(who).filter(|c| c.run == run && !c.up) else { return };
    c.up = true;
    c.watching_since = now;
    c.process = Process { id: format!("c{who}r{run}"), ..Process::default() };
    c.tasks = vec![Task::default(); pools];
    c.summaries = vec![None; pools];
    c.instances.clear();
    c.stale = None;
    c.error = 0;
    c.measure(now);
    if world.leader.is_none() {
        world.after(seconds(1), Event::Lead(who));
    }
}

/// It takes the Lease, if that is free.
pub fn lead(world: &mut World, who: usize) {
    if world.leader.is_some() || world.controllers.get(who).is_none_or(|c| !c.up) {
        return;
    }
    if !world.management_answers() {
        world.after(seconds(5), Event::Lead(who));
        return;
    }
    let now = world.now;
    world.leader = Some(who);
    world.led_since = Some(now);
    world.say(|_| format!("controller {who} leads"));
    let Some(c) = world.controllers.get_mut(who) else { return };
    c.leads = true;
    c.measure(now);
    c.process.leading_since = Some(c.believes(now));
    let (run, pools) = (c.run, c.tasks.len());
    for pool in 0..pools {
        go_on(world, who, run, pool, Duration::from_millis(200));
    }
}

/// It notices that it does not lead any more, and ends.
pub fn lose(world: &mut World, who: usize, run: u32) {
    if world.controllers.get(who).is_some_and(|c| c.run == run && c.up) {
        world.say(|_| format!("controller {who} lost its Lease and ends"));
        crash(world, who);
    }
}

/// The process ends.
pub fn crash(world: &mut World, who: usize) {
    let Some(c) = world.controllers.get_mut(who).filter(|c| c.up) else { return };
    (c.up, c.leads) = (false, false);
    c.run += 1;
    c.tasks.clear();
    c.stalled_until = Time::default();
    let run = c.run;
    if world.leader == Some(who) {
        vacate(world, who);
    }
    let delay = world.latency(2_000, 40_000);
    world.after(delay, Event::Start(who, run));
}

/// Nobody renews the Lease of this one any more.
fn vacate(world: &mut World, who: usize) {
    world.leader = None;
    world.led_since = None;
    for other in 0..world.controllers.len() {
        if other != who {
            world.after(LEASE, Event::Lead(other));
        }
    }
}

/// Lets a task go on after a delay; earlier appointments of it are void.
fn go_on(world: &mut World, who: usize, run: u32, pool: usize, delay: Duration) {
    let at = world.now + delay;
    if let Some(task) = world.controllers.get_mut(who).and_then(|c| c.tasks.get_mut(pool)) {
        task.next = at;
        world.at(at, Event::Task(who, run, pool));
    }
}

/// A watch shows a change: an idle task looks soon.
pub fn wake(world: &mut World, who: usize, pool: usize) {
    let Some(c) = world.controllers.get(who).filter(|c| c.up && c.leads) else { return };
    let (run, soon) = (c.run, world.now + seconds(2));
    let idle = c.tasks.get(pool).is_some_and(|t| matches!(t.doing, Doing::Idle) && t.awaits.is_none() && t.next > soon);
    if idle {
        let delay = world.latency(100, 2_000);
        go_on(world, who, run, pool, delay);
    }
}

/// A task goes on.
pub fn task(world: &mut World, who: usize, run: u32, pool: usize) {
    let now = world.now;
    let Some(c) = world.controllers.get_mut(who).filter(|c| c.up && c.run == run && c.leads) else { return };
    if now < c.stalled_until {
        let delay = c.stalled_until.since(now);
        go_on(world, who, run, pool, delay + Duration::from_millis(1));
        return;
    }
    let Some(task) = c.tasks.get_mut(pool).filter(|t| t.next == now) else { return };
    match std::mem::take(&mut task.doing) {
        Doing::Idle => begin(world, who, run, pool),
        Doing::Looked(view, around) => decide(world, who, run, pool, view, &around),
        Doing::Acts { view, looked_at, left, next } => act(world, who, run, pool, (view, looked_at, left, next)),
    }
}

/// Looks: directly if that was asked for, else at what its watches show.
fn begin(world: &mut World, who: usize, run: u32, pool: usize) {
    let now = world.now;
    let answers = world.management_answers();
    let failing_since = world.workload_down.map(|(since, _)| since);
    let Some(c) = world.controllers.get_mut(who) else { return };
    let Some(task) = c.tasks.get_mut(pool) else { return };
    let directly = std::mem::take(&mut task.directly);
    if c.stale.as_ref().is_some_and(|(_, until)| now >= *until) {
        c.stale = None;
    }
    if directly && !answers {
        go_on(world, who, run, pool, seconds(2));
        return;
    }
    let tick = c.believes(now);
    c.process.clock.ticked(tick, now.since(Time::default()));
    // Each answer carries the server's Date.
    if answers && (directly || now.since(c.measured_at) >= seconds(60) || c.process.clock.jumped_at == Some(tick)) {
        c.measure(now);
    }
    let read = if directly { Read::Direct { at: c.believes(now) } } else { Read::Cached };
    let seen = if directly { &world.state } else { c.stale.as_ref().map_or(&world.state, |(copy, _)| &**copy) };
    let looking = Looking { read, failing_since, watching_since: c.watching_since, instances: &c.instances };
    let believed = c.believes(now);
    let cluster = seen.pools.get(pool).map_or(0, |p| p.cluster);
    let mut found = None;
    let mut fresh = Vec::new();
    for other in 0..seen.pools.len() {
        let near = seen.pools.get(other).is_some_and(|p| p.cluster == cluster);
        if other == pool || near || c.summaries.get(other).is_some_and(Option::is_none) {
            let Some(view) = view::look(seen, other, &looking) else { continue };
            fresh.push((other, controller_core::summarize(&view, believed)));
            if other == pool {
                found = Some(view);
            }
        }
    }
    for (other, summary) in fresh {
        if let Some(slot) = c.summaries.get_mut(other) {
            *slot = Some(summary);
        }
    }
    let Some(view) = found else { return };
    let all: Vec<Summary> = c.summaries.iter().flatten().cloned().collect();
    let own = (view.cluster.namespace.clone(), view.cluster.name.clone());
    let around = Surroundings::of(&own, &all, believed);
    if let Some(task) = c.tasks.get_mut(pool) {
        task.doing = Doing::Looked(Rc::new(view), around);
    }
    let delay = world.latency(1, 60);
    go_on(world, who, run, pool, delay);
}

/// Asks the core.
fn decide(world: &mut World, who: usize, run: u32, pool: usize, view: Rc<PoolView>, around: &Surroundings) {
    let now = world.now;
    world.decisions += 1;
    let sampled = world.decisions.is_multiple_of(16);
    let Some(c) = world.controllers.get_mut(who) else { return };
    let believed = c.believes(now);
    let plan = controller_core::step(&view, around, &c.process, believed);
    if sampled && controller_core::step(&view, around, &c.process, believed) != plan {
        world.journal.push(Happened::Impure(pool));
    }
    world.journal.push(Happened::Looked { pool, view: Rc::clone(&view), believed });
    // What is believed may be wrong: a timer is a difference.
    let next = plan.next.map(|at| now + at.since(believed));
    let left: VecDeque<Effect> = plan.effects.into();
    if !left.is_empty() {
        let names: Vec<&str> = left.iter().map(effects::name).collect();
        let direct = if matches!(view.read, Read::Direct { .. }) { "directly" } else { "on watches" };
        world.say(|_| format!("c{who} decides {direct}: {}", names.join(", ")));
    }
    if let Some(task) = world.controllers.get_mut(who).and_then(|c| c.tasks.get_mut(pool)) {
        if left.is_empty() {
            rest(world, who, run, pool, next);
            return;
        }
        task.doing = Doing::Acts { view, looked_at: now, left, next };
    }
    let delay = world.latency(1, 30);
    go_on(world, who, run, pool, delay);
}

/// Waits for the next timer or change.
fn rest(world: &mut World, who: usize, run: u32, pool: usize, next: Option<Time>) {
    let timer = next.map_or(RESYNC, |at| at.since(world.now)).clamp(seconds(1), RESYNC);
    go_on(world, who, run, pool, timer + Duration::from_millis(20));
}

type Acting = (Rc<PoolView>, Time, VecDeque<Effect>, Option<Time>);

/// Carries out one effect.
fn act(world: &mut World, who: usize, run: u32, pool: usize, (view, looked_at, mut left, next): Acting) {
    let Some(effect) = left.pop_front() else {
        rest(world, who, run, pool, next);
        return;
    };
    let accident = world.controllers.get_mut(who).and_then(befalls);
    match accident {
        Some(Accident::Crash { after: false }) => {
            world.say(|_| format!("controller {who} dies before {}", effects::name(&effect)));
            crash(world, who);
            return;
        }
        Some(Accident::Stall { seconds: s }) => {
            left.push_front(effect);
            stall(world, who, run, pool, Doing::Acts { view, looked_at, left, next }, seconds(u64::from(s)));
            return;
        }
        Some(Accident::Suddenly(sudden)) => crate::disturb::suddenly(world, pool, sudden),
        Some(Accident::Crash { after: true }) | None => {}
    }
    if effect == Effect::LookDirectly {
        if let Some(task) = world.controllers.get_mut(who).and_then(|c| c.tasks.get_mut(pool)) {
            task.directly = true;
        }
        let delay = world.latency(5, 40);
        go_on(world, who, run, pool, delay);
        return;
    }
    if effect.is_destructive() && world.now.since(looked_at) > LOOK_FRESH {
        go_on(world, who, run, pool, Duration::from_millis(100));
        return;
    }
    let called = if let Effect::Power(call) = &effect { Some(call.intent_id.clone()) } else { None };
    let changes = !matches!(effect, Effect::AskInstance { .. } | Effect::AskEvidence { .. });
    let done = effects::carry_out(world, (who, run), pool, &view, effect);
    if matches!(accident, Some(Accident::Crash { after: true })) {
        world.say(|_| format!("controller {who} dies right after"));
        crash(world, who);
        return;
    }
    let waits = called.is_some() && done;
    if waits {
        if let Some(task) = world.controllers.get_mut(who).and_then(|c| c.tasks.get_mut(pool)) {
            task.awaits = called;
        }
        return;
    }
    let delay = world.latency(5, 80);
    if !done {
        // Conflict, outage or refusal: everything is looked at anew.
        let pause = world.latency(300, 1_500);
        go_on(world, who, run, pool, pause);
    } else if left.is_empty() && changes {
        go_on(world, who, run, pool, delay);
    } else {
        let empty = left.is_empty();
        if let Some(task) = world.controllers.get_mut(who).and_then(|c| c.tasks.get_mut(pool)) {
            task.doing = if empty { Doing::Idle } else { Doing::Acts { view, looked_at, left, next } };
        }
        go_on(world, who, run, pool, delay);
    }
}

fn befalls(c: &mut Controller) -> Option<Accident> {
    let mut found = None;
    c.accidents.retain_mut(|(left, accident)| {
        if *left == 0 && found.is_none() {
            found = Some(*accident);
            return false;
        }
        *left = left.saturating_sub(1);
        true
    });
    found
}

fn stall(world: &mut World, who: usize, run: u32, pool: usize, doing: Doing, lasts: Duration) {
    let now = world.now;
    world.say(|_| format!("controller {who} stands still for {}s", lasts.as_secs()));
    if let Some(c) = world.controllers.get_mut(who) {
        c.stalled_until = now + lasts;
        if let Some(task) = c.tasks.get_mut(pool) {
            task.doing = doing;
        }
    }
    go_on(world, who, run, pool, lasts);
    if lasts > seconds(10) && world.leader == Some(who) {
        vacate(world, who);
        // When it moves again it acts on for a moment before it notices.
        let noticed = world.latency(0, 5_000);
        world.after(lasts + noticed, Event::Lose(who, run));
    }
}

/// A power call was answered, or given up.
pub fn answered(world: &mut World, who: usize, run: u32, pool: usize, intent: String, answer: Answer) {
    let Some(c) = world.controllers.get_mut(who).filter(|c| c.up && c.run == run) else { return };
    c.process.calls.insert(intent, Call::Answered(answer));
    if let Some(task) = c.tasks.get_mut(pool) {
        task.awaits = None;
        task.doing = Doing::Idle;
    }
    go_on(world, who, run, pool, Duration::from_millis(5));
}
