//! The configuration file: one YAML document, every key optional, unknown keys and wrong units refused with the place.

use std::{collections::BTreeSet, fmt, fs, io, net::SocketAddr, path::PathBuf, time::Duration};

use agent_core::ConditionType;
use serde::{Deserialize, Deserializer, de};

/// Where the agent's own HTTP server listens unless configured: loopback, and a port that neither node-problem-detector (20256, 20257),
/// node_exporter (9100) nor a Kubernetes component uses.
pub const DEFAULT_HTTP_ADDRESS: &str = "127.0.0.1:20260";

/// Shortest interval that may be configured for anything that repeats: below it the agent would poll.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(100);

/// The whole file.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Settings {
    /// Which condition types are reported.
    pub conditions: ConditionSettings,
    /// `KernelDeadlock`.
    pub kernel_deadlock: DeadlockSettings,
    /// `ReadonlyFilesystem` and `StorageFault`.
    pub node_filesystems: FilesystemSettings,
    /// Events.
    pub events: EventSettings,
    /// `/dev/kmsg`.
    pub kernel_log: KernelLogSettings,
    /// The HTTP server for metrics and probes.
    pub http: HttpSettings,
    /// The host, seen from the agent.
    pub host: HostSettings,
}

/// `conditions`.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ConditionSettings {
    /// Types that the agent neither writes nor evaluates.
    pub disabled: BTreeSet<TypeName>,
    /// How long the agent may be unable to look before a condition turns `Unknown`.
    pub unknown_after: Span,
}

/// `kernelDeadlock`.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct DeadlockSettings {
    /// Units whose tasks the node cannot live without; replaces the built-in list.
    pub critical_units: Option<BTreeSet<String>>,
    /// More of them, beside the list above.
    pub additional_critical_units: BTreeSet<String>,
    /// From how many hung processes on the node is deadlocked, whoever they are.
    pub many_hung_tasks: Several,
    /// Sets the host's `kernel.hung_task_check_interval_secs` while the agent runs, so that hung tasks are found sooner. Off by default:
    /// no sysctl of the host is changed unless this says so.
    pub tune_hung_task_interval: Option<WholeSeconds>,
}

/// `nodeFilesystems`.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct FilesystemSettings {
    /// Paths whose filesystems are the node's; replaces the built-in list.
    pub paths: Option<Vec<AbsolutePath>>,
    /// More of them, beside the list above.
    pub additional_paths: Vec<AbsolutePath>,
    /// How often each is probed without a hint.
    pub probe_interval: Interval,
    /// From when on a probe without an answer is `StorageFault`.
    pub stalled_after: Span,
}

/// `events`.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct EventSettings {
    /// How many Events of one reason may go out at once.
    pub burst: u32,
    /// In how long one more of that reason may go out.
    pub refill: Interval,
    /// How far back before the agent's start a passing problem in the kernel log is still worth an Event.
    pub lookback: Span,
}

/// `kernelLog`.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct KernelLogSettings {
    /// The device that is read.
    pub device: PathBuf,
    /// Take what a process wrote to the kernel log for the kernel's word. For tests only: any process that may write there can then
    /// make the agent look, though never make it report what a look does not confirm.
    pub accept_userspace: bool,
}

/// `http`.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct HttpSettings {
    /// Address and port of `/metrics`, `/healthz` and `/readyz`.
    pub address: SocketAddr,
}

/// `host`.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct HostSettings {
    /// The host's root directory. In a pod with `hostPID` it is that of PID 1.
    pub root: PathBuf,
    /// The proc filesystem of the host's PID namespace.
    pub proc: PathBuf,
    /// Where the agent remembers this boot; on the host, gone with a reboot.
    pub state_directory: PathBuf,
    /// The kubelet's manifest directory, which makes a static pod node-critical.
    pub manifest_directory: PathBuf,
}

impl Default for ConditionSettings {
    fn default() -> Self {
        Self { disabled: BTreeSet::new(), unknown_after: Span(agent_core::Config::default().unknown_after) }
    }
}

impl Default for DeadlockSettings {
    fn default() -> Self {
        Self {
            critical_units: None,
            additional_critical_units: BTreeSet::new(),
            many_hung_tasks: Several(agent_core::Config::default().many_hung),
            tune_hung_task_interval: None,
        }
    }
}

impl Default for FilesystemSettings {
    fn default() -> Self {
        let core = agent_core::Config::default();
        Self {
            paths: None,
            additional_paths: Vec::new(),
            probe_interval: Interval(core.probe_interval),
            stalled_after: Span(core.stalled_after),
        }
    }
}

impl Default for EventSettings {
    fn default() -> Self {
        let core = agent_core::Config::default();
        Self { burst: core.event_burst, refill: Interval(core.event_refill), lookback: Span(core.lookback) }
    }
}

impl Default for KernelLogSettings {
    fn default() -> Self {
        Self { device: "/dev/kmsg".into(), accept_userspace: false }
    }
}

impl Default for HttpSettings {
    fn default() -> Self {
        Self { address: DEFAULT_HTTP_ADDRESS.parse().expect("the default is an address and a port") }
    }
}

impl Default for HostSettings {
    fn default() -> Self {
        Self {
            root: "/proc/1/root".into(),
            proc: "/proc".into(),
            state_directory: "/run/nodeward".into(),
            manifest_directory: "/etc/kubernetes/manifests".into(),
        }
    }
}

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read configuration {path}")]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file does not say what a configuration must say; the text has line, column and what was expected.
    #[error("configuration {path}: {problem}")]
    Parse {
        /// Which file.
        path: PathBuf,
        /// What is wrong, where.
        problem: String,
    },
}

impl Settings {
    /// Reads a configuration file.
    ///
    /// # Errors
    /// If it cannot be read, is no YAML, or has an unknown key, a duplicate key or a value of the wrong kind.
    pub fn read(path: &std::path::Path) -> Result<Self, ConfigError> {
        let text = fs::read_to_string(path).map_err(|source| ConfigError::Read { path: path.into(), source })?;
        Self::parse(&text).map_err(|problem| ConfigError::Parse { path: path.into(), problem })
    }

    /// Reads a configuration. An empty one is the default.
    ///
    /// # Errors
    /// What is wrong, with line and column.
    pub fn parse(text: &str) -> Result<Self, String> {
        let is_content = |line: &str| !matches!(line.trim_start().chars().next(), None | Some('#'));
        if !text.lines().any(is_content) {
            return Ok(Self::default());
        }
        serde_saphyr::from_str(text).map_err(|e| e.to_string())
    }

    /// The part that the core decides by.
    #[must_use]
    pub fn core(&self) -> agent_core::Config {
        let default = agent_core::Config::default();
        let disabled = &self.conditions.disabled;
        let mut critical_units = self.kernel_deadlock.critical_units.clone().unwrap_or(default.critical_units);
        critical_units.extend(self.kernel_deadlock.additional_critical_units.iter().cloned());
        let listed = &self.node_filesystems;
        let mut node_paths = listed.paths.as_ref().map_or(default.node_paths, |paths| paths.iter().map(|p| p.0.clone()).collect());
        node_paths.extend(listed.additional_paths.iter().map(|p| p.0.clone()));
        agent_core::Config {
            enabled: default.enabled.into_iter().filter(|t| !disabled.contains(&TypeName(*t))).collect(),
            unknown_after: self.conditions.unknown_after.0,
            critical_units,
            many_hung: self.kernel_deadlock.many_hung_tasks.0,
            node_paths,
            probe_interval: self.node_filesystems.probe_interval.0,
            stalled_after: self.node_filesystems.stalled_after.0,
            event_burst: self.events.burst,
            event_refill: self.events.refill.0,
            lookback: self.events.lookback.0,
        }
    }
}

/// A condition type by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TypeName(pub ConditionType);

/// A length of time with its unit: `90s`, `5m`, `1h 30m`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span(pub Duration);

/// A length of time after which something repeats: at least [`SHORTEST_INTERVAL`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval(pub Duration);

/// A length of time in whole seconds, at least one: the kernel's own unit for its sysctls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WholeSeconds(pub Duration);

/// A path from the root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AbsolutePath(pub String);

/// A number of at least two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Several(pub usize);

fn span(text: &str) -> Option<Duration> {
    text.parse::<jiff::SignedDuration>().ok().and_then(|d| Duration::try_from(d).ok())
}

/// Deserialises a type from a scalar, by a function that knows the text or not.
macro_rules! from_scalar {
    ($type:ident, $expected:expr, $parse:expr) => {
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_str(Parsed { expected: $expected, parse: $parse })
            }
        }
    };
}

from_scalar!(TypeName, "a condition type of the agent", |text| ConditionType::from_name(text).map(TypeName));
from_scalar!(Span, "a length of time with its unit, such as 30s, 5m or 1h30m", |text| span(text).map(Span));
from_scalar!(Interval, "a length of time of at least 100ms with its unit, such as 30s", |text| {
    span(text).filter(|d| *d >= SHORTEST_INTERVAL).map(Interval)
});
from_scalar!(WholeSeconds, "a length of time in whole seconds with its unit, such as 10s", |text| {
    span(text).filter(|d| d.as_secs() > 0 && d.subsec_nanos() == 0).map(WholeSeconds)
});
from_scalar!(AbsolutePath, "an absolute path", |text| text.starts_with('/').then(|| AbsolutePath(text.into())));
from_scalar!(Several, "a whole number of at least 2", |text| text.parse().ok().filter(|n| *n >= 2).map(Several));

/// Takes a scalar through a function that knows it or not.
struct Parsed<T> {
    expected: &'static str,
    parse: fn(&str) -> Option<T>,
}

impl<T> de::Visitor<'_> for Parsed<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        (self.parse)(text).ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_configuration_is_the_default() {
        for text in ["", "\n", "# nothing but a comment\n", "{}"] {
            assert_eq!(Settings::parse(text), Ok(Settings::default()), "{text:?}");
        }
        assert_eq!(Settings::default().core(), agent_core::Config::default());
    }

    #[test]
    fn what_is_written_reaches_the_core() {
        let settings = Settings::parse(
            "conditions:\n  disabled: [StorageFault]\n  unknownAfter: 10m\n\
             kernelDeadlock:\n  criticalUnits: [a.service]\n  additionalCriticalUnits: [b.service]\n  manyHungTasks: 7\n\
             nodeFilesystems:\n  additionalPaths: [/data]\n  probeInterval: 90s\n  stalledAfter: 1h30m\n\
             events: {burst: 3, refill: 2m, lookback: 0s}\n",
        )
        .unwrap();
        let core = settings.core();
        assert_eq!(core.enabled, [ConditionType::KernelDeadlock, ConditionType::ReadonlyFilesystem].into());
        assert_eq!(core.unknown_after, Duration::from_secs(600));
        assert_eq!(core.critical_units, ["a.service", "b.service"].map(String::from).into());
        assert_eq!(core.many_hung, 7);
        assert!(core.node_paths.contains(&"/data".into()) && core.node_paths.contains(&"/".into()));
        assert_eq!((core.probe_interval, core.stalled_after), (Duration::from_secs(90), Duration::from_secs(5400)));
        assert_eq!((core.event_burst, core.event_refill, core.lookback), (3, Duration::from_secs(120), Duration::ZERO));
    }

    #[test]
    fn a_mistake_is_told_with_its_place_and_what_was_expected() {
        let cases = [
            ("conditions:\n  unknownAfter: 5\n", "2", "a length of time with its unit"),
            ("conditions:\n  unknownAfter: 5 parsecs\n", "2", "a length of time with its unit"),
            ("conditions:\n  disabled: [KernelDeadlok]\n", "2", "a condition type"),
            ("http:\n  adress: 127.0.0.1:1\n", "2", "adress"),
            ("http:\n  address: here\n", "2", "socket address"),
            ("events:\n  burst: 1\n  burst: 2\n", "3", "burst"),
            ("events:\n  burst: -1\n", "2", "burst"),
            ("events: [\n", "", ""),
            ("kernelDeadlock:\n  manyHungTasks: 1\n", "2", "at least 2"),
            ("kernelDeadlock:\n\n  tuneHungTaskInterval: 1500ms\n", "3", "whole seconds"),
            ("nodeFilesystems:\n  paths: [data]\n", "2", "an absolute path"),
            ("nodeFilesystems:\n  probeInterval: 1ms\n", "2", "at least 100ms"),
        ];
        for (text, line, expected) in cases {
            let problem = Settings::parse(text).expect_err(text);
            assert!(problem.contains(expected), "{text:?}: {problem}");
            assert!(problem.contains(line), "{text:?}: {problem}");
        }
    }
}
