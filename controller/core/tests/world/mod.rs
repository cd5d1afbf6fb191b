//! A small, faithful world for scenario files: one pool on a perfect API server, in virtual time. Faults of the API and of timing are the
//! simulation's business, not this one's.

mod script;

use std::{collections::BTreeMap, fmt::Write, time::Duration};

use controller_core::{
    REMEDIATE, Surroundings,
    effect::{Effect, Notice, NoticeKind, Precondition},
    policy::{Policy, Status},
    process::{Answer, Call, Evidence, Process},
    state::{Phase, PoolStatus, PowerMode as Mode, Refusal, RemediationStatus},
    step, summarize,
    time::Time,
    view::*,
};

const TICK: Duration = Duration::from_secs(5);
const START: Time = Time::from_millis(1_796_083_200_000);

/// What the provider answers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Provider {
    Accepts,
    Refuses(Refusal),
    Silent,
    /// The request never arrives, and no answer comes.
    Hangs,
}

/// How a machine comes back from a power call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Comeback {
    Never,
    Good(Duration),
    /// Ready, but the agent is silent.
    ReadyOnly(Duration),
    /// As bad as before, from the new boot.
    Bad(Duration),
}

pub(crate) struct World {
    pub(crate) now: Time,
    pub(crate) pool: PoolView,
    pub(crate) process: Process,
    pub(crate) provider: Provider,
    pub(crate) owner_acts: bool,
    pub(crate) owner_answer: Option<(String, String)>,
    pub(crate) comeback: BTreeMap<String, Comeback>,
    pub(crate) leases: BTreeMap<String, bool>,
    pub(crate) agents: BTreeMap<String, bool>,
    pub(crate) others_struck: bool,
    later: Vec<(Time, String)>,
    log: String,
    serial: u64,
}

fn texts(pairs: &[(&str, &str)]) -> Texts {
    pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

impl World {
    pub(crate) fn new(name: &str, policy: Policy) -> Self {
        let control_plane = name.contains("control");
        let pool = PoolView {
            read: Read::Cached,
            name: "pool".into(),
            persisted: None,
            policy: PolicyView { name: name.into(), annotations: Texts::new(), spec: policy },
            owner: Owner {
                kind: if control_plane { OwnerKind::ControlPlane } else { OwnerKind::MachineDeployment },
                name: "owner".into(),
                paused: false,
                rolling_out: false,
                annotations: Texts::new(),
                labels: Texts::new(),
                etcd: EtcdView::default(),
            },
            cluster: Cluster {
                namespace: "default".into(),
                name: "c".into(),
                paused: false,
                deleting: false,
                infrastructure_ready_at: Some(START - Duration::from_secs(86400)),
                control_plane_initialized_at: Some(START - Duration::from_secs(86400)),
                workload: Workload::Reachable,
            },
            members: Vec::new(),
            orphans: Vec::new(),
        };
        let mut process = Process { id: "p1".into(), leading_since: Some(START - Duration::from_secs(3600)), ..Process::default() };
        process.clock.measured(START, START);
        Self {
            now: START,
            pool,
            process,
            provider: Provider::Accepts,
            owner_acts: true,
            owner_answer: None,
            comeback: BTreeMap::new(),
            leases: BTreeMap::new(),
            agents: BTreeMap::new(),
            others_struck: false,
            later: Vec::new(),
            log: String::new(),
            serial: 0,
        }
    }

    /// Runs the script's commands at their times, until its end; gives what happened.
    pub(crate) fn run(mut self, script: &[(Duration, String)], end: Duration) -> String {
        self.later.extend(script.iter().map(|(at, what)| (START + *at, what.clone())));
        self.later.sort_by_key(|(at, _)| *at);
        while self.now.since(START) <= end {
            while let Some(position) = self.later.iter().position(|(at, _)| *at <= self.now) {
                let (_, what) = self.later.remove(position);
                self.happen(&what);
            }
            self.beat();
            self.settle();
            self.now = self.now + TICK;
        }
        self.log
    }

    pub(crate) fn later(&mut self, after: Duration, what: String) {
        self.later.push((self.now + after, what));
    }

    pub(crate) fn say(&mut self, text: &str) {
        let since = self.now.since(START).as_secs();
        writeln!(self.log, "{:>3}:{:02} {text}", since / 60, since % 60).unwrap();
    }

    fn rv(&mut self) -> String {
        self.serial += 1;
        self.serial.to_string()
    }

    pub(crate) fn member(&mut self, name: &str) -> &mut Member {
        let serial = self.serial + 1;
        self.serial = serial;
        let member = self.pool.members.iter_mut().find(|m| m.machine.name == name).unwrap_or_else(|| panic!("no machine {name}"));
        member.machine.resource_version = serial.to_string();
        member
    }

    pub(crate) fn node(&mut self, name: &str) -> &mut Node {
        match &mut self.member(name).node {
            NodeLook::Present(node) => node,
            NodeLook::NotAsked | NodeLook::Missing => panic!("{name} has no node"),
        }
    }

    /// A machine; with a Node that has been Ready for a day, or without one.
    pub(crate) fn add_machine(&mut self, name: &str, running: bool) {
        let rv = self.rv();
        let bare = self.pool.policy.spec.class == controller_core::policy::Class::BareMetal;
        let born = if running { START - Duration::from_secs(86_400) } else { self.now };
        let uid = format!("u-{name}");
        let machine = Machine {
            name: name.into(),
            uid: uid.clone(),
            resource_version: rv,
            created_at: born,
            provider_id: Some(format!("x://{name}")),
            infrastructure_ready_at: Some(born),
            labels: texts(&[("cluster.x-k8s.io/cluster-name", "c")]),
            etcd_pod_healthy: Some(Status::True),
            etcd_member_healthy: Some(Status::True),
            api_server_healthy: Some(Status::True),
            drain_timeout: Some(Duration::from_secs(180)),
            ..Machine::default()
        };
        // A physical host is claimed again by the machine that follows.
        let host = Host { name: format!("h-{}", &name[..1]), uid: format!("hu-{}", &name[..1]), provisioned: true, ..Host::default() };
        self.pool.members.push(Member {
            machine,
            node: NodeLook::Missing,
            remediation: None,
            host: bare.then_some(host),
            instance: InstanceLook::Unclear,
            health_check: false,
            policies: 1,
        });
        if running {
            self.register(name, born);
        }
    }

    /// The machine's Node appears, with every condition good.
    pub(crate) fn register(&mut self, name: &str, born: Time) {
        let types: Vec<String> = self.pool.policy.spec.triggers.iter().map(|t| t.kind.clone()).collect();
        let serial = self.serial;
        let member = self.member(name);
        member.machine.node_name = Some(format!("n-{name}"));
        let mut node = Node {
            name: format!("n-{name}"),
            uid: format!("nu-{name}-{serial}"),
            created_at: born,
            provider_id: member.machine.provider_id.clone(),
            boot_id: Some(format!("boot-{name}-{serial}")),
            agent_boot_id: Some(format!("boot-{name}-{serial}")),
            ..Node::default()
        };
        for kind in types {
            if node.condition(&kind).is_none() {
                let status = if kind == "Ready" { Status::True } else { Status::False };
                let seen = Some(born + Duration::from_secs(90));
                node.conditions.push(NodeCondition { kind, status, reason: "Good".into(), transition: seen, heartbeat: seen });
            }
        }
        member.node = NodeLook::Present(Box::new(node));
        self.leases.insert(name.into(), true);
        self.agents.insert(name.into(), true);
    }

    /// Kubelets renew Leases, agents rewrite conditions.
    fn beat(&mut self) {
        let now = self.now;
        for member in &mut self.pool.members {
            let NodeLook::Present(node) = &mut member.node else { continue };
            let name = &member.machine.name;
            if self.leases.get(name) == Some(&true) {
                node.lease = Some(NodeLease { renew_time: skewed(node, now), arrived_at: Some(now) });
            }
            let written = skewed(node, now);
            for condition in &mut node.conditions {
                let alive = if condition.kind == "Ready" { self.leases.get(name) } else { self.agents.get(name) };
                if alive == Some(&true) {
                    condition.heartbeat = Some(written);
                }
            }
        }
        let offset = self.process.clock.offset.map(|(o, _)| o);
        if let Some(0) = offset {
            self.process.clock.measured(now, now);
        }
    }

    /// Steps until nothing more follows.
    fn settle(&mut self) {
        let mut direct = false;
        for _ in 0..40 {
            self.pool.read = if direct { Read::Direct { at: self.now } } else { Read::Cached };
            let mut around = Surroundings::of(&("default".into(), "c".into()), &[summarize(&self.pool, self.now)], self.now);
            around.breaker.retain(|_| self.others_struck);
            let plan = step(&self.pool, &around, &self.process, self.now);
            assert_eq!(plan, step(&self.pool, &around, &self.process, self.now), "not a pure function");
            direct = false;
            let mut acted = false;
            for effect in plan.effects {
                if effect == Effect::LookDirectly {
                    direct = true;
                } else {
                    acted |= self.execute(effect);
                }
            }
            if !direct && !acted {
                return;
            }
        }
        panic!("does not settle:\n{}", self.log);
    }

    /// Whether it changed anything.
    fn execute(&mut self, effect: Effect) -> bool {
        let rv = self.rv();
        match effect {
            Effect::LookDirectly => return false,
            Effect::WritePool { resource_version, status, notices } => {
                assert_eq!(resource_version, self.pool.persisted.as_ref().map(|p| p.resource_version.clone()), "stale write");
                let text = serde_json::to_string(&status).unwrap();
                assert_eq!(serde_json::from_str::<PoolStatus>(&text).unwrap(), *status, "does not survive the API server");
                let annotations = self.pool.persisted.take().map(|p| p.annotations).unwrap_or_default();
                self.pool.persisted = Some(Persisted {
                    uid: "pool".into(),
                    resource_version: rv,
                    annotations,
                    deleting: false,
                    finalizer: false,
                    status: *status,
                });
                self.tell(notices);
            }
            Effect::WriteRemediation { machine, precondition, status, finalizer, notices } => {
                let text = serde_json::to_string(&status).unwrap();
                assert_eq!(serde_json::from_str::<RemediationStatus>(&text).unwrap(), *status, "does not survive the API server");
                let delegated = self.pool.policy.spec.integration == controller_core::policy::Integration::Delegated;
                let old = self.take(&machine);
                assert_eq!(precondition, old.as_ref().map(whole), "stale write of {machine}");
                assert!(old.is_some() || !delegated, "in delegated mode the health check makes them");
                let (annotations, uid) = old.map(|p| (p.annotations, p.uid)).unwrap_or((Texts::new(), format!("r-{machine}")));
                self.put(&machine, Persisted { uid, resource_version: rv, annotations, deleting: false, finalizer, status: *status });
                self.tell(notices);
            }
            Effect::DropRemediation { machine, precondition } => {
                let old = self.take(&machine);
                assert_eq!(Some(precondition), old.as_ref().map(whole));
                let phase = old.map(|p| p.status.phase);
                if phase != Some(Phase::Healthy) || self.pool.members.iter().all(|m| m.machine.name != machine) {
                    self.say(&format!("{machine} record dropped"));
                }
            }
            Effect::AskInstance { machine } => {
                let now = self.now;
                let member = self.member(&machine);
                member.instance = match member.machine.annotations.get("test/instance").map(String::as_str) {
                    Some("gone") => InstanceLook::NotFound { at: now, others_seen: true },
                    Some("blind") => InstanceLook::NotFound { at: now, others_seen: false },
                    Some("booting") => InstanceLook::Present { at: now, booting: Some(true) },
                    _ => InstanceLook::Present { at: now, booting: None },
                };
            }
            Effect::AskEvidence { intent_id, .. } => {
                let asked_at = self.now;
                self.process.evidence.insert(intent_id, Evidence::NoTrace { asked_at });
            }
            Effect::Power(call) => self.power(&call.machine, &call.intent_id, call.mode, call.attempt),
            Effect::RequestReplacement(request) => {
                let reason = request.health_check_reason.unwrap_or("-").to_owned();
                self.say(&format!("{} OWNER ASKED ({reason})", request.machine));
                let message = request.message;
                let member = self.member(&request.machine);
                if request.health_check_reason.is_some() {
                    member.machine.health_check_succeeded = Some(Verdict { status: Status::False, reason, message: message.clone() });
                }
                member.machine.owner_remediated = Some(Verdict { status: Status::False, reason: "WaitingForRemediation".into(), message });
                if let Some((reason, message)) = self.owner_answer.clone() {
                    self.member(&request.machine).machine.owner_remediated = Some(Verdict { status: Status::False, reason, message });
                } else if self.owner_acts {
                    self.later(Duration::from_secs(5), format!("{} delete", request.machine));
                }
            }
            Effect::WithdrawRequest { machine, .. } => {
                self.say(&format!("{machine} REQUEST WITHDRAWN"));
                let machine = &mut self.member(&machine).machine;
                (machine.health_check_succeeded, machine.owner_remediated) = (None, None);
            }
            Effect::DeleteMachine { machine, .. } => {
                self.say(&format!("{machine} DELETED BY US"));
                self.happen(&format!("{machine} delete"));
            }
            Effect::RetireHost { host, .. } => {
                self.say(&format!("{host} RETIRED"));
                for member in &mut self.pool.members {
                    if let Some(h) = member.host.as_mut().filter(|h| h.name == host) {
                        h.maintenance = true;
                    }
                }
            }
            Effect::RemoveRemediateAnnotation { machine, .. } => {
                self.say(&format!("{machine} annotation remediate-machine removed"));
                self.member(&machine).machine.annotations.remove(REMEDIATE);
            }
        }
        true
    }

    fn take(&mut self, name: &str) -> Option<Persisted<RemediationStatus>> {
        match self.pool.members.iter_mut().find(|m| m.machine.name == name) {
            Some(member) => member.remediation.take(),
            None => {
                let position = self.pool.orphans.iter().position(|o| o.name == name)?;
                Some(self.pool.orphans.remove(position).remediation)
            }
        }
    }

    fn put(&mut self, name: &str, remediation: Persisted<RemediationStatus>) {
        match self.pool.members.iter_mut().find(|m| m.machine.name == name) {
            Some(member) => member.remediation = Some(remediation),
            None => self.pool.orphans.push(Orphan { name: name.into(), remediation }),
        }
    }

    fn power(&mut self, machine: &str, intent: &str, mode: Mode, attempt: u32) {
        self.say(&format!("{machine} POWER {mode:?}, attempt {attempt}"));
        let at = self.now;
        if self.provider == Provider::Hangs {
            self.process.calls.insert(intent.to_owned(), Call::Sent);
            return;
        }
        let answer = match self.provider {
            Provider::Accepts => Answer::Issued { action_id: None, at },
            Provider::Refuses(how) => Answer::Refused { how, retry_at: None },
            Provider::Silent | Provider::Hangs => Answer::Unknown,
        };
        let booted = !matches!(answer, Answer::Refused { .. });
        self.process.calls.insert(intent.to_owned(), Call::Answered(answer));
        if booted {
            let (after, how) = match self.comeback.get(machine).copied().unwrap_or(Comeback::Good(Duration::from_secs(60))) {
                Comeback::Never => return,
                Comeback::Good(after) => (after, "good"),
                Comeback::ReadyOnly(after) => (after, "ready-only"),
                Comeback::Bad(after) => (after, "bad"),
            };
            self.later(after, format!("{machine} boots {how}"));
        }
    }

    fn tell(&mut self, notices: Vec<Notice>) {
        for Notice { machine, what, message } in notices {
            let who = machine.unwrap_or_else(|| "pool".into());
            let line = if let NoticeKind::PhaseChanged(phase) = what {
                format!("{who} {phase}: {message}")
            } else if let NoticeKind::Held(_) = what {
                format!("{who} held: {message}")
            } else {
                format!("{who} {what:?}: {message}").trim_end_matches(": ").to_owned()
            };
            self.say(&line);
        }
    }
}

/// What the node's own clock says.
fn skewed(node: &Node, now: Time) -> Time {
    let seconds: i64 = node.annotations.get("test/skew").and_then(|s| s.parse().ok()).unwrap_or(0);
    let by = Duration::from_secs(seconds.unsigned_abs());
    if seconds < 0 { now - by } else { now + by }
}

fn whole<S>(persisted: &Persisted<S>) -> Precondition {
    Precondition { uid: persisted.uid.clone(), resource_version: persisted.resource_version.clone() }
}
