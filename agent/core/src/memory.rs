//! What must survive a restart of the agent within one boot.

use serde::{Deserialize, Serialize};

use crate::{condition::Condition, device::DeviceNumber, time::BootTime};

/// What must survive a restart of the agent within one boot. The shell keeps it beside the boot id and drops it when that changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// Conditions as last announced.
    pub conditions: Vec<Condition>,
    /// Sequence number of the last kernel log record whose Events have gone out.
    pub log_cursor: Option<u64>,
    /// Tasks that hung when this was written.
    #[serde(default)]
    pub hung: Vec<HungTask>,
    /// The kernel log reports no more hung tasks; the line that says so may be gone from its ring by the next start.
    #[serde(default)]
    pub hung_reports_suppressed: bool,
    /// Filesystems whose probe had no answer when this was written.
    #[serde(default)]
    pub stalled: Vec<StalledFilesystem>,
    /// What the kernel said about filesystems that refused writes when this was written.
    #[serde(default)]
    pub kernel_words: Vec<KernelWords>,
    /// What only one of tracepoint and kernel log has reported yet.
    #[serde(default)]
    pub incidents: Vec<Incident>,
}

/// The kernel's words about a device, as they are remembered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelWords {
    /// Name of the device.
    pub name: Option<String>,
    /// Its number.
    pub number: Option<DeviceNumber>,
    /// When they were said.
    pub at: BootTime,
    /// The words.
    pub text: String,
}

/// A task that hung, as it is remembered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HungTask {
    /// Thread id.
    pub pid: u32,
    /// What a look found of it; nothing if none could be made.
    pub seen: Option<Sleeper>,
    /// The node cannot live without it, as far as was known.
    pub is_critical: bool,
    /// Name as the kernel gave it.
    pub comm: String,
    /// When the kernel first said so.
    pub since: BootTime,
}

/// One sleep of one task: while both are unchanged, it has not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sleeper {
    /// Clock ticks after boot at which the task started.
    pub start_ticks: u64,
    /// How often it had run.
    pub switches: u64,
}

/// A filesystem whose probe had no answer, as it is remembered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StalledFilesystem {
    /// Where.
    pub mount_point: String,
    /// Which mount there.
    pub mount_id: u64,
    /// Since when.
    pub since: BootTime,
}

/// A fault of one object, however many sources report it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Incident {
    /// Which fault of what.
    pub key: String,
    /// When it was last reported.
    pub at: BootTime,
    /// Reports by tracepoint.
    pub traced: u64,
    /// Reports in the kernel log.
    pub logged: u64,
}
