//! What users write: the spec of a `RemediationPolicy`. A policy says how Machines are judged and what may be done to them.

use std::{borrow::Cow, collections::BTreeMap, time::Duration};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::{provider::Provider, time::Seconds};

/// The family that the kubelet and the node lifecycle controller own.
pub const READY: &str = "Ready";

/// How the Machines of some pools are judged, and what may be done to them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "self.class != 'BareMetal' || self.triggers.all(t, t.action == 'Alert' || t.type == 'Ready')",
     "message": "on bare metal only Ready may start a remediation: set action: Alert"},
    {"rule": "self.class != 'BareMetal' || self.triggers.all(t, t.action == 'Alert' || t.status != 'Unknown')",
     "message": "on bare metal Ready=Unknown must not start a remediation: set action: Alert"},
    {"rule": "self.reboot.maxAttempts == 0 || self.provider.kind != 'None' || self.mode == 'Shadow'",
     "message": "reboots need a provider: name one, or set reboot.maxAttempts: 0"},
    {"rule": "self.onExhaustion != 'Retire' || self.class == 'BareMetal'", "message": "only bare metal can be retired"},
    {"rule": "self.class != 'Cloud' || self.reboot.maxAttempts <= 1", "message": "a cloud machine is rebooted at most once"}
]))]
pub struct Policy {
    /// Which Machines of this namespace. Two policies on one Machine: neither acts.
    pub selector: Selector,
    /// What the machines are.
    pub class: Class,
    /// Whether anything is done, or only said.
    #[serde(default)]
    pub mode: Mode,
    /// Whether nodeward detects by itself, or a MachineHealthCheck calls it.
    #[serde(default)]
    pub integration: Integration,
    /// Node conditions that are watched.
    #[schemars(length(min = 1, max = 32), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type", "status"]))]
    pub triggers: Vec<Trigger>,
    /// How long a new machine may take until its node is Ready. It does not count as unhealthy meanwhile.
    #[serde(default = "default_grace")]
    pub startup_grace_seconds: Seconds,
    /// Nothing is done while more (or fewer) machines of a pool than this are unhealthy.
    #[serde(default)]
    pub limit: Limit,
    /// How many machines of a pool may be worked on at the same time. A control plane never has more than one.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 100))]
    pub max_in_flight: u32,
    /// Whether and how machines are rebooted before they are replaced.
    #[serde(default)]
    pub reboot: Reboot,
    /// How long after a recovery a machine is taken to be in the same episode.
    #[serde(default = "default_cooldown")]
    pub cooldown_seconds: Seconds,
    /// How long a recovered node must stay good.
    #[serde(default = "default_stability")]
    pub stability_seconds: Seconds,
    /// What happens when more are unhealthy than the limit allows.
    #[serde(default)]
    pub storm: Storm,
    /// How many destructive actions a pool may see.
    #[serde(default)]
    pub budgets: Budgets,
    /// What a node that is now good, now bad, starts.
    #[serde(default)]
    pub flapping: Flapping,
    /// How a machine is removed.
    #[serde(default)]
    pub deletion: Deletion,
    /// What follows when reboots are used up.
    #[serde(default)]
    pub on_exhaustion: Exhaustion,
    /// Who reboots machines.
    #[serde(default)]
    pub provider: Provider,
}

/// Labels of Machines, as in any Kubernetes selector.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Selector {
    /// All of these labels with these values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
    /// And all of these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub match_expressions: Vec<Requirement>,
}

/// One requirement of a selector.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Requirement {
    /// Label key.
    pub key: String,
    /// How it is compared.
    pub operator: Operator,
    /// With what; empty for `Exists` and `DoesNotExist`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub values: Vec<String>,
}

/// How a label is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Operator {
    /// Its value is one of the values.
    In,
    /// It is absent or has another value.
    NotIn,
    /// It is there.
    Exists,
    /// It is not.
    DoesNotExist,
}

impl Selector {
    /// Whether these labels are selected. A selector without anything selects all.
    #[must_use]
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.match_expressions.iter().all(|r| {
                let found = labels.get(&r.key);
                match r.operator {
                    Operator::In => found.is_some_and(|v| r.values.contains(v)),
                    Operator::NotIn => found.is_none_or(|v| !r.values.contains(v)),
                    Operator::Exists => found.is_some(),
                    Operator::DoesNotExist => found.is_none(),
                }
            })
    }
}

/// What the machines are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Class {
    /// Virtual machines: replaced by new ones.
    Cloud,
    /// Physical hosts: wiped and installed anew. A silent one never starts anything.
    BareMetal,
}

/// Whether anything is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Mode {
    /// Acts.
    #[default]
    Act,
    /// Says what it would do.
    Shadow,
}

/// Who starts a remediation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Integration {
    /// nodeward by itself; a MachineHealthCheck on the same Machines is a conflict.
    #[default]
    StandAlone,
    /// A MachineHealthCheck, by creating a `NodeRemediation` from our template.
    Delegated,
}

/// Status of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Status {
    /// It holds.
    True,
    /// It does not.
    False,
    /// Nobody knows.
    Unknown,
}

impl Status {
    /// As in Kubernetes.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

/// One bad status of one Node condition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "self.type != 'Ready' || self.status != 'True'", "message": "Ready=True is the good status"}]))]
pub struct Trigger {
    /// Type of the Node condition.
    #[serde(rename = "type")]
    #[schemars(length(min = 1, max = 316))]
    pub kind: String,
    /// The bad status.
    pub status: Status,
    /// How long it must hold without a break.
    pub hold_seconds: Seconds,
    /// What follows.
    #[serde(default)]
    pub action: Action,
}

/// What follows when a trigger held for its window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Action {
    /// Reboot, then replacement.
    #[default]
    Remediate,
    /// An event and a metric for a person.
    Alert,
}

/// A number of machines, or a share of a pool's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// So many.
    Count(u32),
    /// So many percent of the pool, rounded down.
    Percent(u8),
}

impl Amount {
    /// How many of a pool of this size.
    #[must_use]
    pub fn of(self, size: usize) -> usize {
        match self {
            Self::Count(count) => count as usize,
            Self::Percent(percent) => size.saturating_mul(usize::from(percent)) / 100,
        }
    }
}

impl Serialize for Amount {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Count(count) => serializer.serialize_u32(*count),
            Self::Percent(percent) => serializer.collect_str(&format_args!("{percent}%")),
        }
    }
}

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Raw {
            Count(u32),
            Text(String),
        }
        let wrong = || de::Error::custom("expected a number such as 1, or a share from 0% to 100%");
        match Raw::deserialize(deserializer).map_err(|_| wrong())? {
            Raw::Count(count) => Ok(Self::Count(count)),
            Raw::Text(text) => {
                let percent = text.strip_suffix('%').and_then(|digits| digits.parse().ok()).filter(|p| *p <= 100);
                percent.map(Self::Percent).ok_or_else(wrong)
            }
        }
    }
}

impl JsonSchema for Amount {
    fn schema_name() -> Cow<'static, str> {
        "Amount".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "x-kubernetes-int-or-string": true,
            "pattern": "^(100|[1-9]?[0-9])%$", "minimum": 0, "maximum": 10_000
        })
    }
}

/// Act only while so many machines of the pool are unhealthy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Limit {
    /// At least so many.
    #[serde(default)]
    #[schemars(range(min = 0, max = 10000))]
    pub min: u32,
    /// At most so many: a number, or a percentage of the pool.
    pub max: Amount,
}

impl Default for Limit {
    fn default() -> Self {
        Self { min: 0, max: Amount::Count(1) }
    }
}

/// Whether and how machines are rebooted before they are replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Reboot {
    /// Power calls an episode may have that the provider accepted or may have accepted; 0: replace at once.
    #[serde(default = "one")]
    #[schemars(range(min = 0, max = 5))]
    pub max_attempts: u32,
    /// How long a node may take to come back.
    #[serde(default = "default_wait")]
    pub wait_seconds: Seconds,
    /// Whether the operating system is asked, or the power cut.
    #[serde(default)]
    pub mode: RebootMode,
    /// What happens to a call of which nobody knows whether it was made.
    #[serde(default)]
    pub resend: Resend,
}

impl Default for Reboot {
    fn default() -> Self {
        Self { max_attempts: 1, wait_seconds: default_wait(), mode: RebootMode::default(), resend: Resend::default() }
    }
}

/// How a machine is rebooted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RebootMode {
    /// Soft if the operating system shows life, else hard.
    #[default]
    Auto,
    /// Always hard.
    Hard,
}

/// What happens to a power call of which nobody knows whether it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Resend {
    /// Made again if the provider's log proves that it was not made.
    #[default]
    WhenProvenUnsent,
    /// Never made again: the next step follows after the wait.
    Never,
}

/// What happens when more machines are unhealthy than the limit allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Storm {
    /// How long it must be quiet before the brake is released.
    #[serde(default = "default_quiet")]
    pub quiet_seconds: Seconds,
    /// Who releases the latch.
    #[serde(default)]
    pub resume: Resume,
}

impl Default for Storm {
    fn default() -> Self {
        Self { quiet_seconds: default_quiet(), resume: Resume::default() }
    }
}

/// Who releases the latch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Resume {
    /// A person, by annotation `nodeward.dev/resume`.
    #[default]
    Manual,
    /// Time, as with the brake.
    Automatic,
}

/// Most destructive actions in a sliding time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Budgets {
    /// Replacements of a pool in an hour.
    #[serde(default = "default_replacements")]
    #[schemars(range(min = 0, max = 20))]
    pub replacements_per_hour: u32,
    /// Reboots of a pool in an hour.
    #[serde(default = "default_reboots")]
    #[schemars(range(min = 0, max = 20))]
    pub reboots_per_hour: u32,
    /// Installations of one physical host in a day.
    #[serde(default = "default_reinstalls")]
    #[schemars(range(min = 0, max = 20))]
    pub reinstalls_per_host_per_day: u32,
    /// Episodes of one Machine in a day; the next is replaced at once (cloud) or left to a person (bare metal).
    #[serde(default = "default_episodes")]
    #[schemars(range(min = 1, max = 20))]
    pub episodes_per_machine_per_day: u32,
}

impl Default for Budgets {
    fn default() -> Self {
        Self {
            replacements_per_hour: default_replacements(),
            reboots_per_hour: default_reboots(),
            reinstalls_per_host_per_day: default_reinstalls(),
            episodes_per_machine_per_day: default_episodes(),
        }
    }
}

/// What a node that is now good, now bad, starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Flapping {
    /// An event.
    #[default]
    Alert,
    /// A remediation, as if a window had held.
    Remediate,
}

/// How a machine is removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Deletion {
    /// Its owner (MachineSet, control plane) is asked, by conditions on the Machine.
    #[default]
    OwnerContract,
    /// Workers are deleted by nodeward; control planes as above.
    Direct,
}

/// What follows when reboots are used up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Exhaustion {
    /// The machine is replaced, or the host installed anew.
    #[default]
    Replace,
    /// The host is put into maintenance and leaves the pool until a person clears that.
    Retire,
}

impl Policy {
    /// The bad statuses of one condition type.
    pub fn triggers_of<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Trigger> + 'a {
        self.triggers.iter().filter(move |t| t.kind == kind)
    }

    /// How long a new machine may take.
    #[must_use]
    pub const fn grace(&self) -> Duration {
        self.startup_grace_seconds.duration()
    }
}

const fn one() -> u32 {
    1
}
const fn default_grace() -> Seconds {
    Seconds(600)
}
const fn default_wait() -> Seconds {
    Seconds(180)
}
const fn default_cooldown() -> Seconds {
    Seconds(1800)
}
const fn default_stability() -> Seconds {
    Seconds(60)
}
const fn default_quiet() -> Seconds {
    Seconds(300)
}
const fn default_replacements() -> u32 {
    3
}
const fn default_reboots() -> u32 {
    6
}
const fn default_reinstalls() -> u32 {
    2
}
const fn default_episodes() -> u32 {
    3
}
