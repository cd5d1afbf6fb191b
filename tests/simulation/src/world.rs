//! The world: virtual time, the queue of what happens next, and what each event does to both API servers and to the machines behind them.

use std::{collections::BTreeMap, rc::Rc, time::Duration};

use controller_core::{
    effect::Notice,
    policy::Status,
    process::Answer,
    state::{PoolStatus, RemediationStatus},
    time::Time,
    view::{Machine, OwnerKind, PoolView},
};
use fastrand::Rng;

use crate::{
    body::Body,
    controller::Controller,
    infrastructure::{Executed, Infrastructure},
    owner,
    script::{Disturbance, Sick},
    seconds, setup,
    state::{MachineState, State},
};

/// Something that will happen.
#[derive(Clone, Debug)]
pub enum Event {
    /// A machine goes on.
    Body(String),
    /// The provider has the instance of a new Machine.
    Infrastructure(String),
    /// A deleted Machine is gone, if nothing holds it.
    Gone(String),
    /// An owner looks at its Machines.
    Owner(usize),
    /// The next entry of the script.
    Script(usize),
    /// One controller goes on with one pool.
    Task(usize, u32, usize),
    /// A controller starts.
    Start(usize, u32),
    /// A controller leads, if nobody does.
    Lead(usize),
    /// A controller notices that it does not lead any more.
    Lose(usize, u32),
    /// A power call is carried out.
    Execute(Executed),
    /// A power call is answered.
    Answer(usize, u32, usize, String, Answer),
    /// An outage may be over.
    Over,
}

/// Something that checks must know of.
#[derive(Clone, Debug)]
pub enum Happened {
    /// A controller looked at a pool and decided.
    Looked {
        /// Which pool.
        pool: usize,
        /// What it saw.
        view: Rc<PoolView>,
        /// What it took to be the time.
        believed: Time,
    },
    /// Something destructive left a controller.
    Destroyed(Box<Destruction>),
    /// A power call was carried out.
    Executed(Executed),
    /// A pool's object was written.
    PoolWritten {
        /// Which pool.
        pool: usize,
        /// What was there before.
        before: Box<PoolStatus>,
        /// What is there now.
        after: Box<PoolStatus>,
        /// What the writer had seen.
        view: Rc<PoolView>,
    },
    /// A remediation was written.
    RemediationWritten {
        /// Its name.
        name: String,
        /// What was there before.
        before: Option<Box<RemediationStatus>>,
        /// What is there now.
        after: Box<RemediationStatus>,
        /// What was told.
        notices: Vec<Notice>,
        /// What the writer had seen.
        view: Rc<PoolView>,
    },
    /// An annotation was removed from a Machine.
    AnnotationRemoved {
        /// UID of the Machine.
        uid: String,
        /// It was paused at the look before.
        paused: bool,
    },
    /// A Machine is gone.
    Gone {
        /// Its UID.
        uid: String,
    },
    /// A person acknowledged a pool's latches.
    Acknowledged(usize),
    /// The same arguments gave another plan.
    Impure(usize),
}

/// What kind of destruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Blow {
    /// A power call with this intent.
    Power(String),
    /// The owner is asked to replace the Machine.
    Request,
    /// The Machine is deleted.
    Delete,
    /// The host is put into maintenance.
    Retire,
}

/// One destructive effect, as it left a controller.
#[derive(Clone, Debug)]
pub struct Destruction {
    /// What.
    pub blow: Blow,
    /// Which controller and which run of it.
    pub by: (usize, u32),
    /// Which pool.
    pub pool: usize,
    /// UID of the Machine it was meant for.
    pub uid: String,
    /// Its name.
    pub name: String,
    /// The last look before it.
    pub view: Rc<PoolView>,
    /// What the controller took to be the time.
    pub believed: Time,
}

/// Everything.
pub struct World {
    /// True time: the management API server's clock.
    pub now: Time,
    /// When it began.
    pub began: Time,
    /// Latencies.
    pub rng: Rng,
    /// Both API servers, and the machines.
    pub state: State,
    /// The provider.
    pub infrastructure: Infrastructure,
    /// The controllers.
    pub controllers: Vec<Controller>,
    /// Which one leads.
    pub leader: Option<usize>,
    /// Since when one leads without a break.
    pub led_since: Option<Time>,
    /// What happens from outside.
    pub script: Vec<Disturbance>,
    /// Until when the management API does not answer.
    pub management_down: Option<Time>,
    /// When the management API came back last.
    pub management_back: Time,
    /// Since and until when the workload API does not answer.
    pub workload_down: Option<(Time, Time)>,
    /// Outages of the workload API that are over: since and until.
    pub outages: Vec<(Time, Time)>,
    /// When something last happened from outside.
    pub disturbed_at: Time,
    /// The next boots take so long.
    pub slow_boots: Vec<Duration>,
    /// What happened in this event.
    pub journal: Vec<Happened>,
    /// Lines for people, if wanted.
    pub trace: Option<Vec<String>>,
    /// How often the core was asked.
    pub decisions: u64,
    queue: BTreeMap<(Time, u64), Event>,
    queued: u64,
    owners: BTreeMap<usize, Time>,
}

/// The virtual beginning: 2026-12-01T00:00:00Z.
pub const BEGINNING: Time = Time::from_millis(1_796_083_200_000);

impl World {
    /// Nothing but time.
    #[must_use]
    pub fn new(seed: u64, traced: bool) -> Self {
        Self {
            now: BEGINNING,
            began: BEGINNING,
            rng: Rng::with_seed(seed ^ 0x5eed),
            state: State::new(BEGINNING),
            infrastructure: Infrastructure::default(),
            controllers: vec![Controller::new(0), Controller::new(1)],
            leader: None,
            led_since: None,
            script: Vec::new(),
            management_down: None,
            management_back: BEGINNING,
            workload_down: None,
            outages: Vec::new(),
            disturbed_at: BEGINNING,
            slow_boots: Vec::new(),
            journal: Vec::new(),
            trace: traced.then(Vec::new),
            decisions: 0,
            queue: BTreeMap::new(),
            queued: 0,
            owners: BTreeMap::new(),
        }
    }

    /// A line of the trace.
    pub fn say(&mut self, line: impl FnOnce(&Self) -> String) {
        if self.trace.is_some() {
            let at = self.now.since(self.began).as_millis();
            let text = format!("{:>6}.{:03}s {}", at / 1000, at % 1000, line(self));
            if let Some(trace) = &mut self.trace {
                trace.push(text);
            }
        }
    }

    /// Puts something into the queue.
    pub fn after(&mut self, delay: Duration, event: Event) {
        self.at(self.now + delay, event);
    }

    /// Puts something into the queue.
    pub fn at(&mut self, at: Time, event: Event) {
        if let Event::Owner(pool) = event {
            if self.owners.get(&pool).is_some_and(|next| *next <= at) {
                return;
            }
            self.owners.insert(pool, at);
        }
        self.queued += 1;
        self.queue.insert((at.max(self.now), self.queued), event);
    }

    /// A latency between these many milliseconds.
    pub fn latency(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(self.rng.u64(from..to))
    }

    /// The next event happens; `None` if there is none until then.
    pub fn advance(&mut self, until: Time) -> Option<()> {
        let entry = self.queue.first_entry()?;
        if entry.key().0 > until {
            return None;
        }
        let ((at, _), event) = entry.remove_entry();
        self.now = at;
        self.state.at = at;
        match event {
            Event::Body(uid) => self.touch(&uid),
            Event::Infrastructure(uid) => self.provision(&uid),
            Event::Gone(uid) => self.gone(&uid),
            // One appointment each: an earlier one replaces a later one.
            Event::Owner(pool) if self.owners.get(&pool) == Some(&at) => {
                self.owners.remove(&pool);
                owner::reconcile(self, pool);
            }
            Event::Owner(_) => {}
            Event::Script(entry) => crate::disturb::disturb(self, entry),
            Event::Task(who, run, pool) => crate::controller::task(self, who, run, pool),
            Event::Start(who, run) => crate::controller::start(self, who, run),
            Event::Lead(who) => crate::controller::lead(self, who),
            Event::Lose(who, run) => crate::controller::lose(self, who, run),
            Event::Execute(executed) => self.execute(executed),
            Event::Answer(who, run, pool, intent, answer) => crate::controller::answered(self, who, run, pool, intent, answer),
            Event::Over => self.over(),
        }
        Some(())
    }

    fn over(&mut self) {
        if self.management_down.is_some_and(|until| self.now >= until) {
            self.management_down = None;
            self.management_back = self.now;
            self.say(|_| "management API answers again".to_owned());
            self.wake_all();
        }
        if let Some((since, until)) = self.workload_down.filter(|(_, until)| self.now >= *until) {
            self.workload_down = None;
            self.outages.push((since, until));
            self.say(|_| "workload API answers again".to_owned());
            self.wake_all();
        }
    }

    /// Makes a Machine, as an owner does.
    pub fn create_machine(&mut self, pool: usize, name: Option<String>) {
        let uid = self.state.next_uid();
        let version = self.state.next_version();
        let Some(p) = self.state.pools.get_mut(pool) else { return };
        let metal = !p.hosts.is_empty();
        let name = name.unwrap_or_else(|| format!("{}-{uid}", p.name));
        if metal {
            let free: Vec<usize> =
                p.hosts.iter().enumerate().filter(|(_, (h, on))| on.is_none() && !h.maintenance && !h.fatal).map(|(i, _)| i).collect();
            // Without a free host the Machine waits for one; a new one of the same name is not made meanwhile.
            let Some(slot) = free.get(self.rng.usize(0..free.len().max(1))).copied() else { return };
            if let Some((host, on)) = p.hosts.get_mut(slot) {
                *on = Some(uid.clone());
                host.provisioned = false;
            }
        }
        let bad_image = p.bad_images > 0;
        p.bad_images = p.bad_images.saturating_sub(1);
        let revision = p.revision;
        let boot = self.slow_boots.pop().unwrap_or_else(|| setup::boot_time(metal, &mut self.rng));
        let mut body = Body::new(self.now, boot);
        body.bad_image = bad_image;
        let machine = Machine {
            name: name.clone(),
            uid: uid.clone(),
            resource_version: version,
            created_at: Time::from_millis(self.now.millis() / 1000 * 1000),
            drain_timeout: Some(seconds(180)),
            ..Machine::default()
        };
        let (paused_since, unpaused_at, forgotten_at) = (None, None, None);
        let state = MachineState { machine, pool, revision, body, paused_since, unpaused_at, forgotten_at, pause_noticed: false };
        self.state.machines.push(state);
        self.state.note_pauses(self.now);
        self.say(|_| format!("Machine {name} ({uid}) is made"));
        let delay = self.latency(5_000, 25_000);
        self.after(delay, Event::Infrastructure(uid));
        self.wake(pool);
    }

    fn provision(&mut self, uid: &str) {
        let now = self.now;
        let Some(m) = self.state.machine(uid) else { return };
        let pool = m.pool;
        let host = self.state.pools.get_mut(pool).and_then(|p| p.hosts.iter_mut().find(|(_, on)| on.as_deref() == Some(uid)));
        if let Some((host, _)) = host {
            host.provisioned = true;
            host.resource_version.push('p');
        }
        self.state.write(uid, |m| {
            m.provider_id = Some(format!("hcloud://{}", m.uid));
            m.infrastructure_ready_at = Some(Time::from_millis(now.millis() / 1000 * 1000));
        });
        if let Some(m) = self.state.machine_mut(uid) {
            m.body.booting_until = Some(now + m.body.boot_takes);
        }
        self.touch(uid);
        self.wake(pool);
    }

    /// Lets a machine's truth run until now and shows on the API what changed.
    pub fn touch(&mut self, uid: &str) {
        let now = self.now;
        let Some(at) = self.state.machines.iter().position(|m| m.machine.uid == uid) else { return };
        let fresh = self.state.next_uid();
        let Some(m) = self.state.machines.get_mut(at) else { return };
        let (changed, next) = m.body.settle(now, &mut || fresh.clone(), m.machine.provider_id.as_deref());
        let pool = m.pool;
        if let Some(next) = next {
            self.at(next, Event::Body(uid.to_owned()));
        }
        let Some(m) = self.state.machines.get(at) else { return };
        let joined = m.body.node.is_some() && m.machine.node_name.is_none();
        let control_plane = self.state.pools.get(pool).is_some_and(|p| p.owner.kind == OwnerKind::ControlPlane);
        let etcd = control_plane.then(|| {
            let pod = m.body.is_up() && m.body.ever_ready && !m.body.has(Sick::EtcdDead);
            let listed = m.body.ever_ready;
            (if pod { Status::True } else { Status::False }, if listed { Status::True } else { Status::Unknown })
        });
        let (name, ready) = (m.machine.name.clone(), m.body.ready.status);
        let old = (m.machine.etcd_pod_healthy, m.machine.etcd_member_healthy);
        if joined || etcd.is_some_and(|(pod, member)| old != (Some(pod), Some(member))) {
            self.state.write(uid, |m| {
                m.node_name = Some(m.name.clone()).filter(|_| joined).or_else(|| m.node_name.take());
                if let Some((pod, member)) = etcd {
                    (m.etcd_pod_healthy, m.etcd_member_healthy) = (Some(pod), Some(member));
                    m.api_server_healthy = Some(pod);
                }
            });
        }
        if changed {
            self.say(|w| {
                let body = w.state.machine(uid).map(|m| &m.body);
                let bad: Vec<_> = body.iter().flat_map(|b| &b.sick).map(|a| format!("{:?}", a.sick)).collect();
                let boot = body.map_or(0, |b| b.boot);
                format!("Node {name}: Ready={} boot {boot} {}", ready.map_or("-", Status::as_str), bad.join(" "))
            });
            self.wake(pool);
            self.after(seconds(1), Event::Owner(pool));
        }
    }

    /// A Machine is deleted, by whomever: drained, then gone.
    pub fn delete_machine(&mut self, uid: &str) {
        let now = self.now;
        let Some(m) = self.state.machine(uid).filter(|m| m.machine.deleting_since.is_none()) else { return };
        let (pool, alive) = (m.pool, m.body.ready.status == Some(Status::True));
        self.state.write(uid, |m| m.deleting_since = Some(now));
        let drain = if alive { self.rng.u64(5..200) } else { self.rng.u64(5..40) };
        self.say(|_| format!("Machine {uid} is being deleted, drained for {drain}s"));
        self.after(seconds(drain), Event::Gone(uid.to_owned()));
        self.wake(pool);
    }

    fn gone(&mut self, uid: &str) {
        let Some(m) = self.state.machine(uid) else { return };
        if m.paused_since.is_some() {
            self.after(seconds(15), Event::Gone(uid.to_owned()));
            return;
        }
        let (pool, name) = (m.pool, m.machine.name.clone());
        self.state.machines.retain(|m| m.machine.uid != uid);
        if let Some(p) = self.state.pools.get_mut(pool) {
            for (_, on) in p.hosts.iter_mut().filter(|(_, on)| on.as_deref() == Some(uid)) {
                *on = None;
            }
        }
        self.say(|_| format!("Machine {name} ({uid}) is gone"));
        self.journal.push(Happened::Gone { uid: uid.to_owned() });
        let same = self.state.pools.get(pool).is_some_and(|p| p.same_names && self.state.members(pool).count() < p.replicas);
        if same && self.state.named(&name).is_none() && !self.state.pools.get(pool).is_some_and(|p| p.owner.paused) {
            self.create_machine(pool, Some(name));
        }
        self.after(seconds(1), Event::Owner(pool));
        self.wake(pool);
    }

    fn execute(&mut self, executed: Executed) {
        let now = self.now;
        let uid = executed.machine_uid.clone();
        let soft = executed.intent_id.ends_with("/soft");
        let executed = Executed { at: now, intent_id: executed.intent_id.trim_end_matches("/soft").to_owned(), ..executed };
        self.infrastructure.log.push(executed.clone());
        let boot = self.slow_boots.pop();
        let heard = self.state.machine_mut(&uid).is_some_and(|m| {
            if let Some(boot) = boot {
                m.body.boot_takes = boot;
            }
            m.body.reboot(soft, now)
        });
        self.say(|_| format!("provider reboots {uid} for {}{}", executed.intent_id, if heard { "" } else { ": nobody hears it" }));
        self.journal.push(Happened::Executed(executed));
        self.touch(&uid);
    }

    /// Somebody who watches this pool sees a change.
    pub fn wake(&mut self, pool: usize) {
        for who in 0..self.controllers.len() {
            crate::controller::wake(self, who, pool);
        }
    }

    fn wake_all(&mut self) {
        for pool in 0..self.state.pools.len() {
            self.wake(pool);
        }
    }

    /// The management API answers.
    #[must_use]
    pub const fn management_answers(&self) -> bool {
        self.management_down.is_none()
    }
}
