//! What every monitor may know: the settings, the time, how the sources are, and the host's mounts.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    config::Config,
    device::{Device, DeviceNumber},
    mount::{Mount, MountTable, pod_of_path},
    observation::{Fact, Observation, Source, SourceState},
    time::BootTime,
};

/// The facts that belong to no monitor.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) config: Config,
    pub(crate) started: BootTime,
    pub(crate) now: BootTime,
    mounts: Option<MountTable>,
    /// The mount table has not been read again since its source was down.
    is_table_old: bool,
    node: Vec<NodeMount>,
    sources: BTreeMap<Source, SourceState>,
    caught_up: BTreeSet<Source>,
    /// The highest log record that was taken in, by this run or an earlier one.
    pub(crate) log_cursor: Option<u64>,
}

/// A mount that holds paths of the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeMount {
    pub(crate) mount: Mount,
    pub(crate) paths: Vec<String>,
}

/// How much of a report is news.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum News {
    /// It was told and counted before.
    Known,
    /// From long before the start: counted, but no Event.
    Old,
    /// It is to be told.
    Fresh,
}

/// Whose filesystem is on a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The node's.
    Node { mount_point: String },
    /// A pod's volume.
    Volume { pod: Option<String>, mount_point: String },
    /// Nobody's that we know.
    Elsewhere { mount_point: Option<String> },
}

impl World {
    pub(crate) fn new(config: Config, started: BootTime, log_cursor: Option<u64>) -> Self {
        Self {
            config,
            started,
            now: started,
            mounts: None,
            is_table_old: false,
            node: Vec::new(),
            sources: BTreeMap::new(),
            caught_up: BTreeSet::new(),
            log_cursor,
        }
    }

    /// Takes in what is of the world in an observation.
    pub(crate) fn learn(&mut self, observation: &Observation) {
        match &observation.fact {
            Fact::Mounts(table) => {
                self.node = node_mounts(table, &self.config.node_paths);
                self.mounts = Some(table.clone());
                self.is_table_old = false;
            }
            Fact::Source { source, state } => {
                self.sources.insert(*source, state.clone());
                self.is_table_old |= *source == Source::Mounts && self.why_not(Source::Mounts).is_some();
            }
            Fact::CaughtUp(source) => {
                self.caught_up.insert(*source);
            }
            Fact::Signal(_) | Fact::OomContext(_) | Fact::Lost { .. } | Fact::Filesystem(_) | Fact::Task(_) => {}
        }
    }

    pub(crate) fn mounts(&self) -> Option<&MountTable> {
        self.mounts.as_ref()
    }

    pub(crate) fn node_mounts(&self) -> &[NodeMount] {
        &self.node
    }

    /// How a source is, if it was heard of.
    pub(crate) fn source(&self, source: Source) -> Option<&SourceState> {
        self.sources.get(&source)
    }

    pub(crate) fn is_up(&self, source: Source) -> bool {
        matches!(self.source(source), Some(SourceState::Up { .. }))
    }

    /// Why a source does not work, if it does not.
    pub(crate) fn why_not(&self, source: Source) -> Option<&str> {
        match self.source(source)? {
            SourceState::Up { .. } => None,
            SourceState::Down { why } | SourceState::Absent { why } => Some(why),
        }
    }

    /// Why the mount table may not be as it was last read, if so.
    pub(crate) fn why_mounts_unknown(&self) -> Option<String> {
        match self.why_not(Source::Mounts) {
            Some(why) => Some(format!("the mount table is not watched: {why}")),
            None => self.is_table_old.then(|| "the mount table has not been read again".to_owned()),
        }
    }

    /// Whether a source has nothing from before the start to hand over any more, or will hand over nothing.
    pub(crate) fn has_caught_up(&self, source: Source) -> bool {
        self.caught_up.contains(&source) || self.why_not(source).is_some()
    }

    /// How much of a report is news, by its time and the number of its log record.
    pub(crate) fn news(&self, at: BootTime, sequence: Option<u64>) -> News {
        if sequence.is_some() && sequence <= self.log_cursor {
            News::Known
        } else if self.started.since(at) > self.config.lookback {
            News::Old
        } else {
            News::Fresh
        }
    }

    /// The node's mounts on a device, or whose device lies on it (a partition of a disk).
    pub(crate) fn node_mounts_on<'a>(&'a self, device: &'a Device) -> impl Iterator<Item = &'a NodeMount> + 'a {
        self.node.iter().filter(|node| {
            self.mounts.as_ref().is_some_and(|table| {
                let is_part =
                    || table.device_name(&node.mount).zip(device.name.as_deref()).is_some_and(|(part, disk)| is_partition(part, disk));
                table.is_on(&node.mount, device) || is_part()
            })
        })
    }

    pub(crate) fn is_node_device(&self, device: DeviceNumber) -> bool {
        self.node.iter().any(|node| node.mount.device == device)
    }

    /// Whose filesystem is on a device.
    pub(crate) fn place(&self, device: &Device) -> Place {
        let Some(table) = &self.mounts else { return Place::Elsewhere { mount_point: None } };
        if let Some(node) = self.node.iter().find(|node| table.is_on(&node.mount, device)) {
            return Place::Node { mount_point: node.mount.mount_point.clone() };
        }
        let volume = table.of_device(device).find(|mount| is_volume(&mount.mount_point));
        match volume {
            Some(mount) => {
                let pod = table.pod_of(device).map(|(uid, name)| name.unwrap_or(uid));
                Place::Volume { pod, mount_point: mount.mount_point.clone() }
            }
            None => Place::Elsewhere { mount_point: table.of_device(device).next().map(|mount| mount.mount_point.clone()) },
        }
    }

    /// Whether a local filesystem is a pod's own, so that what waits for it is no sign of a sick node.
    pub(crate) fn is_pod_volume(&self, device: DeviceNumber, mount_point: &str) -> bool {
        !self.is_node_device(device)
            && (is_volume(mount_point) || matches!(self.place(&Device { name: None, number: Some(device) }), Place::Volume { .. }))
    }

    /// One name for a device, however a source knew it.
    pub(crate) fn canonical(&self, device: &Device) -> String {
        let mounted = self.mounts.as_ref().and_then(|table| table.of_device(device).next()).map(|mount| mount.device);
        match device.number.or(mounted) {
            Some(number) => number.to_string(),
            None => device.to_string(),
        }
    }
}

/// A pod's volume, or the place where a storage driver keeps it for all pods of the node.
fn is_volume(mount_point: &str) -> bool {
    pod_of_path(mount_point).is_some() || (mount_point.contains("/plugins/") && mount_point.contains("/globalmount"))
}

/// Whether the one is a partition of the other, by the kernel's naming: `sda1` of `sda`, `nvme0n1p3` of `nvme0n1`.
fn is_partition(part: &str, disk: &str) -> bool {
    let Some(rest) = part.strip_prefix(disk) else { return false };
    let number = if disk.ends_with(|c: char| c.is_ascii_digit()) { rest.strip_prefix('p').unwrap_or_default() } else { rest };
    !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())
}

/// The mounts that hold the node's paths, each with its paths.
fn node_mounts(table: &MountTable, paths: &[String]) -> Vec<NodeMount> {
    let mut found: Vec<NodeMount> = Vec::new();
    for path in paths {
        let Some(mount) = table.holding(path) else { continue };
        match found.iter_mut().find(|node| node.mount.id == mount.id) {
            Some(node) => node.paths.push(path.clone()),
            None => found.push(NodeMount { mount: mount.clone(), paths: vec![path.clone()] }),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_is_told_from_another_disk() {
        for (part, disk, is) in [
            ("sda1", "sda", true),
            ("sda", "sda", false),
            ("sdab", "sda", false),
            ("nvme0n1p3", "nvme0n1", true),
            ("nvme0n10", "nvme0n1", false),
            ("dm-10", "dm-1", false),
            ("loop0p1", "loop0", true),
        ] {
            assert_eq!(is_partition(part, disk), is, "{part} {disk}");
        }
    }
}
