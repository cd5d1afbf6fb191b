//! Which hung tasks the node cannot live without, and which say at least that something is wrong with the node.

use std::collections::BTreeSet;

use crate::{
    task::{Owner, Task, WaitsFor},
    world::World,
};

/// A kernel thread's name was cut to this many bytes before 5.17, also in `/proc`.
const CUT_NAME: usize = 15;

/// Why the node cannot live without a task, if so: by its cgroup, its flags and devices, never by its name alone.
pub(super) fn why_critical(task: &Task, world: &World) -> Option<String> {
    match &task.owner {
        Owner::Init => Some("init".to_owned()),
        Owner::Unit(unit) => world.config.critical_units.contains(unit).then(|| unit.clone()),
        Owner::Pod(pod) => pod.is_static.then(|| format!("static pod {}", pod.name.as_ref().unwrap_or(&pod.uid))),
        Owner::Kernel => writes_back(task, world).map(|mount_point| format!("kernel thread writing back {mount_point}")),
        Owner::Other(_) => None,
    }
}

/// Whether so many processes hang on the node itself that it is sick, whoever they are. What only waits for a network, a FUSE server or a
/// pod's volume does not count, nor does what cannot be told.
pub(super) fn are_many<'a>(hung: impl Iterator<Item = &'a Task>, world: &World) -> bool {
    let (mut processes, mut owners) = (BTreeSet::new(), BTreeSet::new());
    for task in hung {
        let counts = match &task.waits_for {
            WaitsFor::Filesystem { device, mount_point } => !world.is_pod_volume(*device, mount_point),
            WaitsFor::Kernel => true,
            WaitsFor::Network | WaitsFor::Fuse | WaitsFor::Unknown => false,
        };
        if counts {
            processes.insert(task.tgid);
            // A kernel thread is of no unit or pod.
            if task.owner != Owner::Kernel {
                owners.insert(&task.owner);
            }
        }
    }
    processes.len() >= world.config.many_hung && owners.len() >= 2
}

/// The node filesystem that a kernel thread writes back, by the device in its name: `jbd2/NAME-INODE`, `xfsaild/NAME`,
/// `kworker/...flush-MAJ:MIN`, `kworker/...xfs-SOMETHING/NAME`. btrfs workers name none: what they wait for tells.
fn writes_back(task: &Task, world: &World) -> Option<String> {
    let comm = task.comm.as_str();
    let node = world.node_mounts().iter().find(|node| {
        let number = node.mount.device.to_string();
        let name = world.mounts().and_then(|table| table.device_name(&node.mount));
        if let Some(rest) = comm.strip_prefix("jbd2/") {
            return name.is_some_and(|name| is_named(rest, name, CUT_NAME - "jbd2/".len()));
        }
        if let Some(rest) = comm.strip_prefix("xfsaild/") {
            return name.is_some_and(|name| rest == name || (comm.len() == CUT_NAME && name.starts_with(rest)));
        }
        if comm.starts_with("kworker/") {
            let flushed = comm.split_once("flush-").map(|(_, rest)| rest);
            let of_xfs = comm.split_once("xfs-").and_then(|(_, rest)| rest.split_once('/')).map(|(_, rest)| rest);
            let of_btrfs = comm.contains("btrfs-") && waits_for(task, world, node.mount.device);
            return flushed == Some(number.as_str()) || (of_xfs.is_some() && of_xfs == name) || of_btrfs;
        }
        comm.starts_with("btrfs-") && waits_for(task, world, node.mount.device)
    })?;
    Some(node.mount.mount_point.clone())
}

/// Whether `NAME-INODE`, possibly cut, is of this device.
fn is_named(rest: &str, name: &str, cut: usize) -> bool {
    let is_inode = |inode: &str| inode.bytes().all(|b| b.is_ascii_digit());
    let whole = rest.strip_prefix(name).and_then(|rest| rest.strip_prefix('-')).is_some_and(is_inode);
    whole || (rest.len() == cut && name.starts_with(rest))
}

fn waits_for(task: &Task, world: &World, node: crate::device::DeviceNumber) -> bool {
    match &task.waits_for {
        WaitsFor::Filesystem { device, .. } => *device == node && world.is_node_device(*device),
        WaitsFor::Network | WaitsFor::Fuse | WaitsFor::Kernel | WaitsFor::Unknown => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_thread_is_known_by_its_device_also_when_its_name_was_cut() {
        for (rest, name, is) in [
            ("sda1-8", "sda1", true),
            ("dm-0-8", "dm-0", true),
            ("sda1-8", "sda", false),
            ("sda10-8", "sda1", false),
            ("nvme0n1p1-", "nvme0n1p1", true),
            ("nvme0n1p12", "nvme0n1p12", true),
            ("nvme0n1p1-", "nvme0n1p12", false),
        ] {
            assert_eq!(is_named(rest, name, 10), is, "{rest} {name}");
        }
    }
}
