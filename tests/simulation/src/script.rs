//! What goes wrong in a run and what people do in it: a list that is drawn from the seed before the run begins, so that a failing one can be shortened.

use std::{fmt, time::Duration};

use fastrand::Rng;

/// One thing that happens from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disturbance {
    /// When, after the beginning.
    pub at: Duration,
    /// What.
    pub what: What,
}

/// Families of the simulated agent, in the order in which [`Sick::Daemon`] counts them.
pub const DAEMONS: [&str; 4] = ["KernelDeadlock", "ReadonlyFilesystem", "ServiceNotRecovering", "VerityCorruption"];

/// What ails a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sick {
    /// The kernel does nothing any more: no Lease, no agent, deaf to ACPI.
    Hang,
    /// The kubelet is dead, the system lives.
    KubeletDead,
    /// The kubelet says that it is not Ready.
    NotReady,
    /// The agent sees this family bad.
    Daemon(usize),
    /// The agent is dead.
    AgentSilent,
    /// The agent does not write this family.
    Absent(usize),
    /// Etcd on it is dead, which its membership does not show.
    EtcdDead,
    /// The control plane says `Unknown` of a node that lives.
    Unobserved,
}

/// What happens to the machine that a controller works on, at the worst moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sudden {
    /// A person pauses it.
    Pause,
    /// It recovers by itself.
    Recovery,
    /// A person deletes it.
    Deletion,
    /// Two others of its pool fall ill.
    Storm,
    /// The workload API ceases to answer.
    Outage,
}

/// How the provider treats a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// As it should.
    Obeyed,
    /// The request never arrives; the caller sees a timeout.
    RequestLost,
    /// It is carried out; the caller sees a timeout.
    AnswerLost,
    /// It is carried out this many seconds later; the caller sees a timeout.
    Late(u32),
    /// An error of the server, which carried it out.
    ErrorButDone,
    /// An error of the server, which did not carry it out.
    ErrorNotDone,
    /// Refused for now.
    Busy,
    /// Too many requests.
    RateLimited,
    /// Our credentials.
    Unauthorized,
    /// A lie: it does not know the instance.
    NotFound,
    /// Accepted, and then it fails.
    Fails,
}

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A node falls ill. Machines are chosen by their place among those that exist then.
    Sicken {
        /// Which machine.
        machine: usize,
        /// With what.
        sick: Sick,
        /// Whether a reboot helps.
        heals: bool,
        /// Whether it passes by itself, and after how many seconds.
        lasts: Option<u32>,
    },
    /// It is bad and good in turn.
    Flap {
        /// Which machine.
        machine: usize,
        /// Seconds of each half.
        half: u32,
        /// How often.
        times: u32,
    },
    /// Ready turns from Unknown to False and back, without ever being True.
    Alternate {
        /// Which machine.
        machine: usize,
        /// Seconds of each half.
        half: u32,
        /// How often.
        times: u32,
    },
    /// The node's clock is off by so many seconds.
    Skew {
        /// Which machine.
        machine: usize,
        /// Ahead, or behind.
        seconds: i64,
    },
    /// The next boots take so many seconds.
    SlowBoots {
        /// Each.
        seconds: u32,
    },
    /// The next new machines of the pool never become Ready.
    BadImage {
        /// How many.
        machines: u32,
    },
    /// The Node object gets another provider id.
    ForeignNode {
        /// Which machine.
        machine: usize,
    },
    /// The instance is gone at the provider.
    InstanceVanishes {
        /// Which machine.
        machine: usize,
    },
    /// The management API does not answer.
    ManagementDown {
        /// For how many seconds.
        seconds: u32,
    },
    /// The workload API does not answer.
    WorkloadDown {
        /// For how many seconds.
        seconds: u32,
    },
    /// All nodes are said to be Unknown while their Leases are fresh.
    ObserverBroken {
        /// For how many seconds.
        seconds: u32,
    },
    /// Watches of a controller stand still.
    Lag {
        /// Which controller.
        controller: usize,
        /// For how many seconds.
        seconds: u32,
    },
    /// Someone else writes all Machines: versions move.
    Touch,
    /// The next calls are treated so.
    Provider {
        /// How.
        fate: Fate,
        /// How many calls.
        calls: u32,
    },
    /// The next questions to the provider are answered with a lie, or not at all.
    ProviderLies {
        /// How many.
        answers: u32,
        /// It says so of every machine of the cluster.
        of_all: bool,
    },
    /// A controller dies at its so manieth effect from now.
    Crash {
        /// Which controller.
        controller: usize,
        /// After how many more effects.
        effects: u32,
        /// Between the effect and its answer.
        after: bool,
    },
    /// A controller stops at its so manieth effect from now, and goes on later as if nothing had happened.
    Stall {
        /// Which controller.
        controller: usize,
        /// After how many more effects.
        effects: u32,
        /// For how many seconds.
        seconds: u32,
    },
    /// Something happens just before a controller's so manieth effect from now.
    Suddenly {
        /// Which controller.
        controller: usize,
        /// After how many more effects.
        effects: u32,
        /// What.
        sudden: Sudden,
    },
    /// A controller's wall clock jumps.
    ClockJump {
        /// Which controller.
        controller: usize,
        /// By so many seconds.
        seconds: i64,
    },
    /// A person pauses a Machine.
    Pause {
        /// Which machine.
        machine: usize,
        /// With which of the keys and values.
        how: usize,
    },
    /// A person removes every pause of a Machine.
    Unpause {
        /// Which machine.
        machine: usize,
    },
    /// A person misspells a pause.
    Mistype {
        /// Which machine.
        machine: usize,
        /// How.
        how: usize,
    },
    /// A person pauses or unpauses the cluster.
    PauseCluster {
        /// Paused.
        paused: bool,
    },
    /// A person pauses or unpauses the owner of a pool.
    PauseOwner {
        /// Which pool.
        pool: usize,
        /// Paused.
        paused: bool,
    },
    /// A person deletes a Machine.
    Delete {
        /// Which machine.
        machine: usize,
    },
    /// A person deletes a Node object.
    DeleteNode {
        /// Which machine.
        machine: usize,
    },
    /// A person scales a pool by one.
    Scale {
        /// Which pool.
        pool: usize,
        /// Up, or down.
        up: bool,
    },
    /// A person changes the template of a pool.
    Rollout {
        /// Which pool.
        pool: usize,
    },
    /// A person acknowledges every latch.
    Acknowledge,
    /// Somebody asks for a remediation now.
    Annotate {
        /// Which machine.
        machine: usize,
    },
    /// A person asks to try again.
    Retry {
        /// Which machine.
        machine: usize,
    },
    /// A person deletes a `NodeRemediation`.
    DeleteRemediation {
        /// Which machine.
        machine: usize,
    },
}

impl fmt::Display for Disturbance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>6}s {:?}", self.at.as_secs(), self.what)
    }
}

/// The script of a seed: a few themes, each with one or more disturbances that belong together.
#[must_use]
pub fn draw(rng: &mut Rng, pools: usize, length: Duration) -> Vec<Disturbance> {
    let mut script = Vec::new();
    let themes = rng.usize(2..9);
    for _ in 0..themes {
        let at = Duration::from_secs(rng.u64(60..length.as_secs()));
        theme(rng, pools, at, &mut script);
    }
    if rng.bool() {
        // A machine falls ill, and something else happens at any of the moments in which it is worked on.
        let at = Duration::from_secs(rng.u64(60..length.as_secs() - 1_000));
        let machine = rng.usize(0..16);
        let sick = if rng.bool() { Sick::NotReady } else { Sick::KubeletDead };
        script.push(Disturbance { at, what: What::Sicken { machine, sick, heals: rng.bool(), lasts: None } });
        let sudden = [Sudden::Pause, Sudden::Recovery, Sudden::Deletion, Sudden::Storm, Sudden::Outage][rng.usize(0..5)];
        let (controller, effects) = (0, rng.u32(0..16));
        let what = match rng.u8(0..3) {
            0 => What::Crash { controller, effects, after: rng.bool() },
            _ => What::Suddenly { controller, effects, sudden },
        };
        script.push(Disturbance { at: at + Duration::from_secs(if rng.bool() { 250 } else { 590 }), what });
    }
    script.sort_by_key(|d| d.at);
    script
}

fn theme(rng: &mut Rng, pools: usize, at: Duration, script: &mut Vec<Disturbance>) {
    let mut add = |after: u64, what: What| script.push(Disturbance { at: at + Duration::from_secs(after), what });
    let machine = rng.usize(0..16);
    let controller = usize::from(rng.u8(0..4) == 0);
    match rng.u32(0..100) {
        0..30 => add(0, sicken(rng, machine)),
        30..36 => {
            for i in 0..rng.usize(2..5) {
                let what = sicken(rng, machine + i);
                add(rng.u64(0..120), what);
            }
        }
        36..39 => add(0, What::Flap { machine, half: rng.u32(20..200), times: rng.u32(2..10) }),
        39..42 => add(0, What::Alternate { machine, half: rng.u32(60..290), times: rng.u32(4..20) }),
        42..45 => {
            let day = if rng.bool() { 86_400 } else { -86_400 };
            add(0, What::Skew { machine, seconds: if rng.bool() { day } else { rng.i64(-400..400) } });
            add(rng.u64(60..400), sicken(rng, machine));
        }
        45..47 => add(0, What::SlowBoots { seconds: rng.u32(100..900) }),
        47..49 => {
            add(0, What::BadImage { machines: rng.u32(1..4) });
            add(30, What::Sicken { machine, sick: Sick::Hang, heals: false, lasts: None });
        }
        49..50 => add(0, What::ForeignNode { machine }),
        50..52 => {
            add(0, What::InstanceVanishes { machine });
        }
        52..54 => add(0, What::ManagementDown { seconds: rng.u32(5..400) }),
        54..57 => add(0, What::WorkloadDown { seconds: rng.u32(5..900) }),
        57..58 => add(0, What::ObserverBroken { seconds: rng.u32(200..1500) }),
        58..60 => add(0, What::Lag { controller: 0, seconds: rng.u32(20..300) }),
        60..61 => add(0, What::Touch),
        61..69 => {
            let what = What::Provider { fate: fate(rng), calls: rng.u32(1..4) };
            add(0, what);
            add(rng.u64(0..200), What::Sicken { machine, sick: Sick::Hang, heals: rng.bool(), lasts: None });
        }
        69..71 => add(0, What::ProviderLies { answers: rng.u32(1..6), of_all: rng.bool() }),
        71..77 => add(rng.u64(0..600), What::Crash { controller, effects: rng.u32(0..40), after: rng.bool() }),
        77..81 => add(rng.u64(0..600), What::Stall { controller, effects: rng.u32(0..40), seconds: rng.u32(1..200) }),
        81..83 => add(0, What::ClockJump { controller: 0, seconds: rng.i64(-4000..4000) }),
        83..87 => {
            add(0, What::Pause { machine, how: rng.usize(0..4) });
            add(rng.u64(20..1500), What::Unpause { machine });
            if rng.bool() {
                add(rng.u64(0..600), sicken(rng, machine));
            }
        }
        87..88 => {
            add(0, What::Mistype { machine, how: rng.usize(0..4) });
            add(30, What::Sicken { machine, sick: Sick::Hang, heals: rng.bool(), lasts: None });
        }
        88..89 => {
            add(0, What::PauseCluster { paused: true });
            add(rng.u64(60..1500), What::PauseCluster { paused: false });
        }
        89..90 => {
            let pool = rng.usize(0..pools);
            add(0, What::PauseOwner { pool, paused: true });
            add(rng.u64(60..1500), What::PauseOwner { pool, paused: false });
        }
        90..92 => add(0, What::Delete { machine }),
        92..94 => {
            add(0, What::DeleteNode { machine });
            if rng.bool() {
                add(rng.u64(1..200), What::DeleteNode { machine: machine + 1 });
            }
        }
        94..95 => add(0, What::Scale { pool: rng.usize(0..pools), up: rng.bool() }),
        95..96 => add(0, What::Rollout { pool: rng.usize(0..pools) }),
        96..97 => add(0, What::Acknowledge),
        97..98 => add(0, What::Annotate { machine }),
        98..99 => add(0, What::Retry { machine }),
        _ => add(0, What::DeleteRemediation { machine }),
    }
}

fn sicken(rng: &mut Rng, machine: usize) -> What {
    let sick = match rng.u32(0..24) {
        0..8 => Sick::Hang,
        8..11 => Sick::KubeletDead,
        11..15 => Sick::NotReady,
        15..20 => Sick::Daemon(rng.usize(0..DAEMONS.len())),
        20 => Sick::AgentSilent,
        21 => Sick::Absent(rng.usize(0..DAEMONS.len())),
        22 => Sick::EtcdDead,
        _ => Sick::Unobserved,
    };
    let lasts = match rng.u8(0..8) {
        0..5 => None,
        5 => Some(rng.u32(10..130)),
        6 => Some(rng.u32(280..330)),
        _ => Some(rng.u32(500..1000)),
    };
    What::Sicken { machine, sick, heals: rng.u8(0..3) > 0, lasts }
}

fn fate(rng: &mut Rng) -> Fate {
    match rng.u8(0..10) {
        0 => Fate::RequestLost,
        1 => Fate::AnswerLost,
        2 => Fate::Late(rng.u32(2..15)),
        3 => Fate::ErrorButDone,
        4 => Fate::ErrorNotDone,
        5 => Fate::Busy,
        6 => Fate::RateLimited,
        7 => Fate::Unauthorized,
        8 => Fate::NotFound,
        _ => Fate::Fails,
    }
}
