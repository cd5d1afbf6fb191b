//! What a machine is really like: power, kernel, kubelet, agent, clock; and what of that its Node object shows at a moment.

use std::time::Duration;

use controller_core::{
    policy::Status,
    time::Time,
    view::{Node, NodeCondition, NodeLease, NodeLook},
};

use crate::{
    script::{DAEMONS, Sick},
    seconds,
};

/// A node is said to be Unknown so long after its last Lease renewal.
const MONITOR: Duration = seconds(50);
/// A kubelet renews its Lease, and rewrites unchanged conditions, so often.
const RENEW: u64 = 10_000;
const REWRITE: u64 = 300_000;

/// One machine's inner life.
#[derive(Clone, Debug)]
pub struct Body {
    /// The provider has the instance.
    pub exists: bool,
    /// Until when it boots; none: it is up.
    pub booting_until: Option<Time>,
    /// Which boot this is.
    pub boot: u32,
    /// The boot that its Node shows.
    pub shown_boot: u32,
    /// Somebody deleted its Node object; a kubelet registers only when it starts.
    pub deregistered: bool,
    /// It never becomes Ready.
    pub bad_image: bool,
    /// What ails it.
    pub sick: Vec<Ailment>,
    /// Its Node object, once it registered.
    pub node: Option<Registered>,
    /// It was Ready once.
    pub ever_ready: bool,
    /// Since when its kubelet is silent.
    pub silent_since: Option<Time>,
    /// Since when its kubelet speaks.
    pub kubelet_since: Time,
    /// Until when the kubelet of a new boot says False.
    pub warm_until: Time,
    /// When the agent of this boot writes first.
    pub agent_at: Time,
    /// The boot that the agent's annotation names.
    pub agent_boot: Option<u32>,
    /// Since when the agent speaks, and since when it does not.
    pub agent_since: Time,
    /// As said.
    pub agent_silent_since: Option<Time>,
    /// What Ready says.
    pub ready: Said,
    /// What the agent's families say.
    pub daemons: [Said; 4],
    /// How far its clock is ahead, in milliseconds.
    pub skew: i64,
    /// How long it takes to boot.
    pub boot_takes: Duration,
}

/// What ails it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ailment {
    /// What.
    pub sick: Sick,
    /// A reboot heals it.
    pub heals: bool,
    /// It passes by itself.
    pub until: Option<Time>,
}

/// A Node object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registered {
    /// Its UID.
    pub uid: String,
    /// When it was made.
    pub created_at: Time,
    /// Its provider id.
    pub provider_id: String,
}

/// What one condition says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// Its status; none: it is absent.
    pub status: Option<Status>,
    /// Since when, truly.
    pub since: Time,
    /// Since when it was not good, truly.
    pub bad_since: Option<Time>,
}

impl Said {
    fn say(&mut self, status: Option<Status>, good: Status, now: Time) -> bool {
        if self.status == status {
            return false;
        }
        *self = Self {
            status,
            since: now,
            bad_since: match status {
                None => None,
                Some(s) if s == good => None,
                Some(_) => self.bad_since.or(Some(now)),
            },
        };
        true
    }
}

impl Body {
    /// A machine that was just made.
    #[must_use]
    pub fn new(now: Time, boot_takes: Duration) -> Self {
        Self {
            exists: true,
            booting_until: Some(now + boot_takes),
            boot: 0,
            shown_boot: 0,
            deregistered: false,
            bad_image: false,
            sick: Vec::new(),
            node: None,
            ever_ready: false,
            silent_since: Some(now),
            kubelet_since: now,
            warm_until: now,
            agent_at: now,
            agent_boot: None,
            agent_since: now,
            agent_silent_since: Some(now),
            ready: Said::default(),
            daemons: [Said::default(); 4],
            skew: 0,
            boot_takes,
        }
    }

    /// Whether this ails it now.
    #[must_use]
    pub fn has(&self, sick: Sick) -> bool {
        self.sick.iter().any(|a| a.sick == sick)
    }

    /// The operating system runs.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.exists && self.booting_until.is_none() && !self.has(Sick::Hang)
    }

    /// The kubelet runs.
    #[must_use]
    pub fn speaks(&self) -> bool {
        self.is_up() && self.node.is_some() && !self.has(Sick::KubeletDead)
    }

    /// Power was cut, or the system asked to boot. A system that hangs does not hear the latter.
    pub fn reboot(&mut self, soft: bool, now: Time) -> bool {
        if !self.exists || (soft && !self.is_up()) {
            return false;
        }
        self.booting_until = Some(now + self.boot_takes);
        true
    }

    /// Lets the truth run until now. Whether anything that the API shows changed, and when to look again.
    pub fn settle(&mut self, now: Time, new_uid: &mut dyn FnMut() -> String, provider_id: Option<&str>) -> (bool, Option<Time>) {
        let mut changed = false;
        self.sick.retain(|a| a.until.is_none_or(|until| now < until));
        if self.booting_until.is_some_and(|until| now >= until) && self.exists {
            self.booting_until = None;
            self.boot += 1;
            self.deregistered = false;
            self.sick.retain(|a| !a.heals);
            self.warm_until = now + seconds(10);
            self.agent_at = now + seconds(15);
            changed = true;
        }
        if self.node.is_none()
            && !self.deregistered
            && self.is_up()
            && !self.has(Sick::KubeletDead)
            && let Some(provider_id) = provider_id
        {
            self.node = Some(Registered { uid: new_uid(), created_at: now, provider_id: provider_id.to_owned() });
            self.ready = Said::default();
            self.daemons = [Said::default(); 4];
            (self.agent_boot, self.silent_since) = (None, None);
            self.kubelet_since = now;
            self.warm_until = self.warm_until.max(now + seconds(5));
            self.agent_at = self.agent_at.max(now + seconds(8));
            changed = true;
        }
        if self.node.is_none() {
            return (changed, self.next(now));
        }
        if self.speaks() {
            changed |= self.shown_boot != self.boot;
            self.shown_boot = self.boot;
            if self.silent_since.take().is_some() {
                self.kubelet_since = now;
                changed = true;
            }
        } else {
            self.silent_since.get_or_insert(now);
        }
        let unready = self.has(Sick::NotReady) || self.bad_image || now < self.warm_until;
        let ready = match self.silent_since {
            _ if self.has(Sick::Unobserved) && self.ever_ready => Some(Status::Unknown),
            None => Some(if unready { Status::False } else { Status::True }),
            Some(since) if now.since(since) >= MONITOR => Some(Status::Unknown),
            Some(_) => self.ready.status.or(Some(Status::False)),
        };
        changed |= self.ready.say(ready, Status::True, now);
        self.ever_ready |= ready == Some(Status::True);
        let agent = self.is_up() && !self.has(Sick::AgentSilent) && now >= self.agent_at;
        if agent {
            if self.agent_silent_since.take().is_some() || self.agent_boot != Some(self.boot) {
                self.agent_since = now;
                self.agent_boot = Some(self.boot);
                changed = true;
            }
            for (i, said) in self.daemons.iter_mut().enumerate() {
                let bad = self.sick.iter().any(|a| a.sick == Sick::Daemon(i));
                let absent = self.sick.iter().any(|a| a.sick == Sick::Absent(i));
                let status = (!absent).then_some(if bad { Status::True } else { Status::False });
                changed |= said.say(status, Status::False, now);
            }
        } else {
            self.agent_silent_since.get_or_insert(now);
        }
        (changed, self.next(now))
    }

    fn next(&self, now: Time) -> Option<Time> {
        let monitor = self.silent_since.map(|at| at + MONITOR);
        let times = [self.booting_until, monitor, Some(self.warm_until), Some(self.agent_at)];
        let until = self.sick.iter().filter_map(|a| a.until);
        times.into_iter().flatten().chain(until).filter(|at| *at > now).min()
    }

    /// When the kubelet renewed its Lease last.
    #[must_use]
    pub fn renewed_at(&self, now: Time) -> Time {
        last(self.kubelet_since, self.silent_since, RENEW, now)
    }

    /// When the agent wrote its conditions last.
    #[must_use]
    pub fn agent_wrote_at(&self, now: Time) -> Time {
        last(self.agent_since, self.agent_silent_since, REWRITE, now)
    }

    /// What the API shows of the Node at this moment to somebody who watches since then.
    #[must_use]
    pub fn look(&self, name: &str, now: Time, watching_since: Time) -> NodeLook {
        let Some(node) = &self.node else { return NodeLook::Missing };
        let mut conditions = Vec::with_capacity(5);
        let ready_rewritten = match self.ready.status {
            Some(Status::Unknown) => self.ready.since,
            _ => last(self.ready.since.max(self.kubelet_since), self.silent_since, REWRITE, now).max(self.ready.since),
        };
        let skew = if self.ready.status == Some(Status::Unknown) { 0 } else { self.skew };
        conditions.extend(condition("Ready", self.ready, ready_rewritten, skew));
        for (said, kind) in self.daemons.iter().zip(DAEMONS) {
            conditions.extend(condition(kind, *said, self.agent_wrote_at(now).max(said.since), self.skew));
        }
        let renewed = self.renewed_at(now);
        NodeLook::Present(Box::new(Node {
            name: name.to_owned(),
            uid: node.uid.clone(),
            created_at: floor(node.created_at),
            provider_id: Some(node.provider_id.clone()),
            boot_id: Some(format!("{name}-{}", self.shown_boot)),
            agent_boot_id: self.agent_boot.map(|boot| format!("{name}-{boot}")),
            conditions,
            lease: Some(NodeLease { renew_time: shifted(renewed, self.skew), arrived_at: (renewed >= watching_since).then_some(renewed) }),
            annotations: controller_core::view::Texts::new(),
            labels: controller_core::view::Texts::new(),
        }))
    }
}

fn condition(kind: &str, said: Said, written: Time, skew: i64) -> Option<NodeCondition> {
    let status = said.status?;
    let date = |at| Some(floor(shifted(at, skew)));
    Some(NodeCondition { kind: kind.to_owned(), status, reason: String::new(), transition: date(said.since), heartbeat: date(written) })
}

/// The last moment of a rhythm that began then and ended then.
fn last(since: Time, until: Option<Time>, every: u64, now: Time) -> Time {
    let end = until.unwrap_or(now).min(now);
    let beats = u64::try_from(end.since(since).as_millis()).unwrap_or(0) / every;
    since + Duration::from_millis(beats * every)
}

fn floor(at: Time) -> Time {
    Time::from_millis(at.millis() / 1000 * 1000)
}

fn shifted(at: Time, millis: i64) -> Time {
    Time::from_millis(at.millis().saturating_add_signed(millis))
}
