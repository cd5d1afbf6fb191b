//! What a task in uninterruptible sleep waits for: its stack tells the kind of thing, its system call which. What does not fit together
//! cannot be told.

use agent_core::{
    DeviceNumber,
    mount::{Mount, MountTable},
    task::WaitsFor,
};

use super::{
    Directory,
    object::{self, Object},
    stack::{self, Place},
};
use crate::{
    host::{
        Host,
        mountinfo::{self, MountLine},
        read_file,
    },
    look::Apart,
};

/// What a process waits for.
pub(super) fn of_process(host: &Host, directory: &Directory, aside: &Apart) -> WaitsFor {
    let place = directory.read("stack").ok().and_then(|stack| stack::place(&stack));
    match place {
        Some(Place::Network) => WaitsFor::Network,
        Some(Place::Fuse) => WaitsFor::Fuse,
        Some(Place::Kernel) => WaitsFor::Kernel,
        Some(Place::Unknown) => WaitsFor::Unknown,
        Some(Place::Files(_)) | None => weigh(place, object::of(directory, aside), || host_mounts(host)),
    }
}

/// What a kernel thread waits for. They make no system calls, but many are named after the device that they serve; the kernel gives these
/// names, and no process can take the flag of a kernel thread.
pub(super) fn of_kernel_thread(host: &Host, directory: &Directory, name: &str) -> WaitsFor {
    let place = directory.read("stack").ok().and_then(|stack| stack::place(&stack));
    match place {
        Some(Place::Network) => WaitsFor::Network,
        Some(Place::Fuse) => WaitsFor::Fuse,
        Some(Place::Files(_) | Place::Kernel | Place::Unknown) | None => {
            let served = device_served(name).and_then(|served| match served {
                Served::Name(name) => host.device_number(name),
                Served::Number(number) => Some(number),
            });
            match served.and_then(|device| mount_of(device, &host_mounts(host)).cloned()) {
                Some(mount) if is_network(&mount.fs_type) => WaitsFor::Network,
                Some(mount) if is_fuse(&mount.fs_type) => WaitsFor::Fuse,
                Some(mount) => WaitsFor::Filesystem { device: mount.device, mount_point: mount.mount_point },
                None if place == Some(Place::Kernel) => WaitsFor::Kernel,
                None => WaitsFor::Unknown,
            }
        }
    }
}

/// Puts a place in the files' layers and the file of the system call together.
fn weigh(place: Option<Place>, object: Object, host: impl FnOnce() -> Vec<MountLine>) -> WaitsFor {
    let family = match place {
        Some(Place::Files(family)) => family,
        Some(Place::Network | Place::Fuse | Place::Kernel | Place::Unknown) => return WaitsFor::Unknown,
        // Without a stack (it takes CAP_SYS_ADMIN) only what is surely not the node's can be told.
        None => {
            return match object {
                Object::On(line) if is_network(&line.mount.fs_type) => WaitsFor::Network,
                Object::On(line) if is_fuse(&line.mount.fs_type) => WaitsFor::Fuse,
                Object::On(_) | Object::NoFile | Object::Unknown => WaitsFor::Unknown,
            };
        }
    };
    let line = match object {
        Object::On(line) => line,
        // In generic code, for a device or a pipe.
        Object::NoFile if family.is_none() => return WaitsFor::Kernel,
        Object::NoFile | Object::Unknown => return WaitsFor::Unknown,
    };
    let host = host();
    let mount = match below_overlay(&line, &host) {
        Some(mount) => mount,
        None => line.mount.clone(),
    };
    match family {
        Some(family) if !family.serves(&mount.fs_type) => WaitsFor::Unknown,
        None if is_network(&mount.fs_type) => WaitsFor::Network,
        None if is_fuse(&mount.fs_type) => WaitsFor::Fuse,
        None if !is_on_storage(&mount) => {
            if mount.fs_type == "overlay" {
                WaitsFor::Unknown
            } else {
                WaitsFor::Kernel
            }
        }
        Some(_) | None => {
            let mount_point = mount_of(mount.device, &host).map_or(mount.mount_point.clone(), |found| found.mount_point.clone());
            WaitsFor::Filesystem { device: mount.device, mount_point }
        }
    }
}

/// A container's root is an overlay; what it writes goes to a directory of the host.
fn below_overlay(line: &MountLine, host: &[MountLine]) -> Option<Mount> {
    if line.mount.fs_type != "overlay" {
        return None;
    }
    let upper = line.super_option("upperdir").filter(|upper| upper.starts_with('/'))?;
    let table = MountTable { mounts: host.iter().map(|line| line.mount.clone()).collect(), ..MountTable::default() };
    table.holding(&upper).filter(|mount| mount.fs_type != "overlay").cloned()
}

/// Where the host has a device mounted: the whole of it rather than a part.
fn mount_of(device: DeviceNumber, host: &[MountLine]) -> Option<&Mount> {
    let of_device = || host.iter().map(|line| &line.mount).filter(|mount| mount.device == device);
    of_device().find(|mount| mount.root == "/").or_else(|| of_device().next())
}

fn host_mounts(host: &Host) -> Vec<MountLine> {
    read_file(&host.mountinfo()).map(|table| mountinfo::parse(&table).0).unwrap_or_default()
}

/// Whether touching such a mount may wait for somebody who is not this kernel.
pub(super) fn is_remote(fs_type: &str) -> bool {
    is_network(fs_type) || is_fuse(fs_type)
}

fn is_network(fs_type: &str) -> bool {
    matches!(
        fs_type,
        "nfs" | "nfs4" | "cifs" | "smb3" | "smbfs" | "ceph" | "9p" | "afs" | "gfs2" | "ocfs2" | "lustre" | "glusterfs" | "ncpfs"
    )
}

fn is_fuse(fs_type: &str) -> bool {
    matches!(fs_type, "fuse" | "fuseblk" | "virtiofs") || fs_type.starts_with("fuse.")
}

/// Filesystems of many devices have an anonymous number, as those have that keep nothing.
fn is_on_storage(mount: &Mount) -> bool {
    mount.device.major != 0 || matches!(mount.fs_type.as_str(), "btrfs" | "bcachefs" | "zfs" | "ubifs" | "jffs2")
}

/// The device in a kernel thread's name.
enum Served<'a> {
    Name(&'a str),
    Number(DeviceNumber),
}

/// `jbd2/sda1-8`, `xfsaild/dm-0`, `kworker/0:1+xfs-sync/sda1`, `kworker/u8:2-flush-8:0` (`fs/jbd2/journal.c`, `fs/xfs/`,
/// `fs/fs-writeback.c`; `+` and `-` are `wq_worker_comm`'s).
fn device_served(name: &str) -> Option<Served<'_>> {
    /// Before 5.17 names are cut at 15 bytes.
    const CUT: usize = 15;
    if let Some(journal) = name.strip_prefix("jbd2/") {
        // The inode of the journal stands behind the last dash; a cut name without one may have lost part of the device.
        return match journal.rsplit_once('-') {
            Some((device, inode)) if inode.bytes().all(|b| b.is_ascii_digit()) && !device.ends_with("dm") => Some(Served::Name(device)),
            Some(_) | None => (name.len() < CUT).then_some(Served::Name(journal)),
        };
    }
    if let Some(device) = name.strip_prefix("xfsaild/") {
        return (name.len() != CUT).then_some(Served::Name(device));
    }
    let work = name.strip_prefix("kworker/")?;
    if let Some((_, number)) = work.rsplit_once("flush-") {
        let (major, minor) = number.split_once(':')?;
        return Some(Served::Number(DeviceNumber { major: major.parse().ok()?, minor: minor.parse().ok()? }));
    }
    let (_, work) = work.split_once(['+', '-'])?;
    Some(Served::Name(work.strip_prefix("xfs-")?.split_once('/')?.1))
}

#[cfg(test)]
mod tests {
    use super::{super::stack::Family, *};

    const HOST: &str = "27 1 254:0 / / rw - ext4 /dev/vda rw\n\
                        30 27 7:0 /sub /mnt/part rw - xfs /dev/loop0 rw\n\
                        31 27 7:0 / /mnt/whole rw - xfs /dev/loop0 rw\n\
                        32 27 0:45 / /mnt/nfs rw - nfs4 server:/x rw\n\
                        33 27 0:50 / /btr rw - btrfs /dev/sdb rw\n";

    fn lines(text: &str) -> Vec<MountLine> {
        mountinfo::parse(text.as_bytes()).0
    }

    fn on(line: &str) -> Object {
        Object::On(Box::new(lines(line).remove(0)))
    }

    fn told(family: Option<Family>, object: Object) -> WaitsFor {
        weigh(Some(Place::Files(family)), object, || lines(HOST))
    }

    fn filesystem(major: u32, minor: u32, mount_point: &str) -> WaitsFor {
        WaitsFor::Filesystem { device: DeviceNumber { major, minor }, mount_point: mount_point.into() }
    }

    const EXT4: &str = "90 80 254:0 /pods/x /data rw - ext4 /dev/vda rw";
    const OVERLAY: &str = "80 70 0:60 / / rw - overlay overlay rw,lowerdir=/l,upperdir=/mnt/whole/fs,workdir=/mnt/whole/work";

    #[test]
    fn a_local_file_is_waited_for_where_the_host_has_it_mounted() {
        assert_eq!(told(None, on(EXT4)), filesystem(254, 0, "/"));
        assert_eq!(told(Some(Family::Ext), on(EXT4)), filesystem(254, 0, "/"));
        assert_eq!(told(None, on("1 0 7:0 / /x rw - xfs /dev/loop0 rw")), filesystem(7, 0, "/mnt/whole"));
        assert_eq!(told(None, on("1 0 0:50 / /x rw - btrfs /dev/sdb rw")), filesystem(0, 50, "/btr"));
    }

    #[test]
    fn a_mount_that_only_the_container_has_keeps_its_own_name() {
        assert_eq!(told(None, on("1 0 7:9 / /private rw - ext4 /dev/loop9 rw")), filesystem(7, 9, "/private"));
    }

    #[test]
    fn a_containers_root_is_waited_for_where_its_writes_go() {
        assert_eq!(told(None, on(OVERLAY)), filesystem(7, 0, "/mnt/whole"));
        assert_eq!(told(Some(Family::Xfs), on(OVERLAY)), filesystem(7, 0, "/mnt/whole"));
        assert_eq!(told(Some(Family::Ext), on(OVERLAY)), WaitsFor::Unknown);
        assert_eq!(told(None, on("80 70 0:60 / / ro - overlay overlay ro,lowerdir=/l:/m")), WaitsFor::Unknown);
    }

    #[test]
    fn a_remote_file_is_the_networks_or_fuses() {
        assert_eq!(told(None, on("1 0 0:45 / /n rw - nfs4 server:/x rw")), WaitsFor::Network);
        assert_eq!(told(None, on("1 0 0:46 / /n rw - fuse.sshfs host: rw")), WaitsFor::Fuse);
        assert_eq!(weigh(None, on("1 0 0:45 / /n rw - nfs4 server:/x rw"), Vec::new), WaitsFor::Network);
    }

    #[test]
    fn a_stack_and_a_file_that_do_not_fit_together_tell_nothing() {
        assert_eq!(told(Some(Family::Xfs), on(EXT4)), WaitsFor::Unknown);
        assert_eq!(told(Some(Family::Ext), on("1 0 0:45 / /n rw - nfs4 server:/x rw")), WaitsFor::Unknown);
        assert_eq!(told(Some(Family::Ext), Object::NoFile), WaitsFor::Unknown);
        assert_eq!(told(None, Object::Unknown), WaitsFor::Unknown);
        assert_eq!(weigh(None, on(EXT4), Vec::new), WaitsFor::Unknown);
    }

    #[test]
    fn what_lies_on_no_disk_is_the_kernels() {
        assert_eq!(told(None, on("1 0 0:22 / /sys rw - sysfs sysfs rw")), WaitsFor::Kernel);
        assert_eq!(told(None, Object::NoFile), WaitsFor::Kernel);
    }

    #[test]
    fn a_kernel_thread_is_known_by_the_device_it_serves() {
        let served = |name| match device_served(name) {
            Some(Served::Name(name)) => name.to_owned(),
            Some(Served::Number(number)) => number.to_string(),
            None => "none".into(),
        };
        assert_eq!(served("jbd2/loop0-8"), "loop0");
        assert_eq!(served("jbd2/dm-0-8"), "dm-0");
        assert_eq!(served("jbd2/sdb1"), "sdb1");
        assert_eq!(served("jbd2/dm-12"), "dm-12");
        assert_eq!(served("jbd2/nvme0n1p3-"), "nvme0n1p3");
        assert_eq!(served("jbd2/nvme0n1p12"), "none");
        assert_eq!(served("xfsaild/dm-0"), "dm-0");
        assert_eq!(served("kworker/0:1+xfs-sync/sda1"), "sda1");
        assert_eq!(served("kworker/u8:2-flush-254:0"), "254:0");
        assert_eq!(served("kworker/u8:2+flush-0:45"), "0:45");
        assert_eq!(served("kworker/0:0-events"), "none");
        assert_eq!(served("kthreadd"), "none");
    }
}
