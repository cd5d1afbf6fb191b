//! The words of a scenario file: what may happen to the world.

use std::time::Duration;

use controller_core::{
    policy::Status,
    process::Process,
    state::Refusal,
    view::{NodeCondition, NodeLook, Orphan, OwnerKind, Persisted, Texts, Verdict, Workload},
};

use super::{Comeback, Provider, World, skewed};

impl World {
    /// One thing happens. Words: see `scenarios/README.md`.
    pub(crate) fn happen(&mut self, what: &str) {
        let words: Vec<&str> = what.split_whitespace().collect();
        match words.as_slice() {
            ["machines", names @ ..] => names.iter().for_each(|name| self.add_machine(name, true)),
            ["new", name] => self.add_machine(name, false),
            ["provider", word] => self.provider = provider(word),
            ["owner", "acts"] => (self.owner_acts, self.owner_answer) = (true, None),
            ["owner", "idle"] => self.owner_acts = false,
            ["owner", "says", reason, message @ ..] => self.owner_answer = Some(((*reason).into(), message.join(" "))),
            ["owner", "none"] => self.pool.owner.kind = OwnerKind::Other,
            ["owner", "rollout"] => self.pool.owner.rolling_out = true,
            ["owner", "paused"] => self.pool.owner.paused = true,
            ["etcd", "ghost"] => self.pool.owner.etcd.ghost = true,
            ["workload", "down"] => self.workload(false),
            ["workload", "up"] => self.workload(true),
            ["clock", "unknown"] => self.process.clock.offset = None,
            ["clock", "known"] => self.process.clock.measured(self.now, self.now),
            ["fleet", "struck"] => self.others_struck = true,
            ["crash"] => self.crash(),
            ["acknowledge"] => self.acknowledge(),
            ["log", text @ ..] => self.say(&text.join(" ")),
            [name, rest @ ..] => self.machine_does(name, rest),
            [] => {}
        }
    }

    fn machine_does(&mut self, name: &str, words: &[&str]) {
        let now = self.now;
        match words {
            ["delete"] => {
                if self.pool.members.iter().any(|m| m.machine.name == name && m.machine.deleting_since.is_none()) {
                    self.member(name).machine.deleting_since = Some(now);
                    self.say(&format!("({name} is being deleted)"));
                    self.later(Duration::from_secs(60), format!("{name} gone"));
                }
            }
            ["gone"] => self.gone(name),
            ["registers"] => {
                self.register(name, now);
                self.leases.insert(name.into(), true);
                for condition in &mut self.node(name).conditions {
                    condition.transition = Some(now + Duration::from_secs(1));
                }
                self.say(&format!("({name} is Ready)"));
            }
            ["boots", how] => self.boots(name, how),
            ["comes-back", "never"] => drop(self.comeback.insert(name.into(), Comeback::Never)),
            ["comes-back", how, seconds] => {
                let after = Duration::from_secs(seconds.parse().unwrap());
                let how = match *how {
                    "good" => Comeback::Good(after),
                    "ready-only" => Comeback::ReadyOnly(after),
                    _ => Comeback::Bad(after),
                };
                self.comeback.insert(name.into(), how);
            }
            ["lease", word] => drop(self.leases.insert(name.into(), *word == "on")),
            ["agent", word] => drop(self.agents.insert(name.into(), *word == "on")),
            ["skew", seconds] => drop(self.node(name).annotations.insert("test/skew".into(), (*seconds).into())),
            ["annotate", pair] => {
                let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
                self.member(name).machine.annotations.insert(key.into(), value.into());
            }
            ["unannotate", key] => drop(self.member(name).machine.annotations.remove(*key)),
            ["label", key] => drop(self.member(name).machine.labels.insert((*key).into(), "true".into())),
            ["retry"] => {
                let record = self.member(name).remediation.as_mut().expect("a record");
                record.annotations.insert("nodeward.dev/retry".into(), format!("at {now}"));
            }
            ["record", "made"] => {
                self.member(name).remediation = Some(Persisted {
                    uid: format!("r-{name}"),
                    resource_version: "made".into(),
                    annotations: Texts::new(),
                    deleting: false,
                    finalizer: false,
                    status: Default::default(),
                });
            }
            ["record", "deleted"] => self.member(name).remediation = None,
            ["node", "deleted"] => self.member(name).node = NodeLook::Missing,
            ["node", "foreign"] => self.node(name).provider_id = Some("x://other".into()),
            ["health-check"] => self.member(name).health_check = true,
            ["two-policies"] => self.member(name).policies = 2,
            ["outdated"] => self.member(name).machine.outdated = true,
            ["etcd", "dead"] => self.member(name).machine.etcd_pod_healthy = Some(Status::False),
            ["etcd", "alive"] => self.member(name).machine.etcd_pod_healthy = Some(Status::True),
            ["host", "maintenance"] => self.member(name).host.as_mut().expect("a host").maintenance = true,
            ["host", "fatal"] => self.member(name).host.as_mut().expect("a host").fatal = true,
            ["owner-answers", reason] => {
                let verdict = Verdict { status: Status::False, reason: (*reason).into(), message: "not now".into() };
                self.member(name).machine.owner_remediated = Some(verdict);
            }
            conditions => conditions.iter().for_each(|pair| self.condition(name, pair)),
        }
    }

    /// `Type=Status`, or `Type=absent`; transition now, or `Type=Status@seconds` before now.
    fn condition(&mut self, name: &str, pair: &str) {
        let (kind, rest) = pair.split_once('=').unwrap_or_else(|| panic!("not understood: {name} {pair}"));
        let (word, ago) = rest.split_once('@').unwrap_or((rest, "0"));
        let ago: i64 = ago.parse().unwrap();
        let by = Duration::from_secs(ago.unsigned_abs());
        let transition = if ago < 0 { self.now + by } else { self.now - by };
        if word == "absent" {
            self.node(name).conditions.retain(|c| c.kind != kind);
            return;
        }
        let status = match word {
            "True" => Status::True,
            "False" => Status::False,
            "Unknown" => Status::Unknown,
            _ => panic!("not understood: {name} {pair}"),
        };
        if kind == "Ready" {
            // A silent node is one whose kubelet does not renew its Lease, unless a scenario says so afterwards.
            self.leases.insert(name.into(), status != Status::Unknown);
        }
        let node = self.node(name);
        let fresh = NodeCondition {
            kind: kind.into(),
            status,
            reason: "Scripted".into(),
            transition: Some(transition),
            heartbeat: Some(transition),
        };
        match node.conditions.iter_mut().find(|c| c.kind == kind) {
            Some(old) => *old = fresh,
            None => node.conditions.push(fresh),
        }
    }

    fn boots(&mut self, name: &str, how: &str) {
        let (now, serial) = (self.now, self.serial);
        if !self.pool.members.iter().any(|m| m.machine.name == name && matches!(m.node, NodeLook::Present(_))) {
            return;
        }
        self.say(&format!("({name} boots, {how})"));
        self.leases.insert(name.into(), true);
        self.agents.insert(name.into(), how != "ready-only");
        let node = self.node(name);
        node.boot_id = Some(format!("boot-{name}-{serial}"));
        if how != "ready-only" {
            node.agent_boot_id = node.boot_id.clone();
        }
        let written = skewed(node, now);
        for condition in &mut node.conditions {
            let good = if condition.kind == "Ready" { Status::True } else { Status::False };
            if how == "good" || condition.kind == "Ready" {
                if condition.status != good {
                    (condition.status, condition.transition) = (good, Some(written));
                }
                condition.heartbeat = Some(written);
            }
        }
    }

    fn gone(&mut self, name: &str) {
        self.say(&format!("({name} is gone)"));
        let position = self.pool.members.iter().position(|m| m.machine.name == name).expect("a machine");
        let member = self.pool.members.remove(position);
        if let Some(remediation) = member.remediation {
            self.pool.orphans.push(Orphan { name: name.into(), remediation });
        }
        // The owner makes the next one: a becomes a2.
        let number: u32 = name[1..].parse().unwrap_or(1);
        let next = format!("{}{}", &name[..1], number + 1);
        self.add_machine(&next, false);
        self.later(Duration::from_secs(120), format!("{next} registers"));
    }

    fn workload(&mut self, up: bool) {
        self.pool.cluster.workload = if up { Workload::Reachable } else { Workload::Failing { since: self.now } };
    }

    fn crash(&mut self) {
        let serial = self.serial;
        self.process = Process { id: format!("p-{serial}"), leading_since: Some(self.now), ..Process::default() };
        self.process.clock.measured(self.now, self.now);
        self.say("(the controller starts anew)");
    }

    fn acknowledge(&mut self) {
        let pool = self.pool.persisted.as_mut().expect("a pool object");
        let ids: Vec<_> = pool.status.latches.iter().map(|latch| latch.id.clone()).collect();
        pool.annotations.insert("nodeward.dev/resume".into(), ids.join(","));
        self.say("(a person acknowledges)");
    }
}

fn provider(word: &str) -> Provider {
    match word {
        "accepts" => Provider::Accepts,
        "silent" => Provider::Silent,
        "hangs" => Provider::Hangs,
        "later" => Provider::Refuses(Refusal::Later),
        "rate-limited" => Provider::Refuses(Refusal::RateLimited),
        "auth" => Provider::Refuses(Refusal::Auth),
        "not-found" => Provider::Refuses(Refusal::NotFound),
        "unsupported" => Provider::Refuses(Refusal::Unsupported),
        "invalid" => Provider::Refuses(Refusal::Invalid),
        _ => panic!("provider {word}"),
    }
}
