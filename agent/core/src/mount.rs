//! The host's mount table (`/proc/1/mountinfo`), and what says which of it is read-only by design.

use crate::device::{Device, DeviceNumber};

/// One line of mountinfo (`Documentation/filesystems/proc.rst` section 3.5), escapes undone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Unique id of the mount.
    pub id: u64,
    /// Id of the mount that it is on.
    pub parent: u64,
    /// Device of the superblock; anonymous (major 0) for btrfs, overlay, tmpfs and the like.
    pub device: DeviceNumber,
    /// Which directory of the filesystem is mounted: `/`, or that of a bind mount.
    pub root: String,
    /// Where, as PID 1 sees it.
    pub mount_point: String,
    /// This mount alone is read-only (an administrator's `remount,ro`, a read-only bind).
    pub read_only: bool,
    /// `ext4`, `xfs`, `overlay`, ...
    pub fs_type: String,
    /// What was mounted: `/dev/sda1`, `overlay`, ...
    pub source: String,
    /// What the superblock says of itself.
    pub super_state: SuperState,
}

/// The superblock's own word in the last field of mountinfo. ext4 shows an emergency only from 6.15 (and a shutdown from 6.18), XFS
/// never: `ReadWrite` is no proof of health.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SuperState {
    /// `rw` and nothing else of interest.
    ReadWrite,
    /// `ro`.
    ReadOnly,
    /// `emergency_ro`.
    Emergency,
    /// `shutdown`.
    Shutdown,
}

/// The host's mounts as they were when last read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MountTable {
    /// In mountinfo's order: of two on one mount point the later one covers the earlier.
    pub mounts: Vec<Mount>,
    /// Mount points that `/etc/fstab` wants read-only.
    pub fstab_read_only: Vec<String>,
    /// Mount points that `/etc/fstab` names at all.
    pub fstab: Vec<String>,
    /// The kernel command line has the word `ro`.
    pub root_read_only: bool,
    /// Where configured node paths lead when symbolic links are followed; only those that differ.
    pub links: Vec<(String, String)>,
    /// UIDs of the pods that have a log directory on the node, each with `namespace/name`.
    pub pods: Vec<(String, String)>,
    /// The kernel's names (`sda1`, `dm-0`) of the devices that are mounted, where sysfs knows them: a mount's source may be another name.
    pub device_names: Vec<(DeviceNumber, String)>,
}

impl MountTable {
    /// The mount on which a path lies, by walking from the root as the kernel does: a later mount covers an earlier one.
    #[must_use]
    pub fn holding(&self, path: &str) -> Option<&Mount> {
        let path = self.links.iter().find(|(from, _)| from == path).map_or(path, |(_, to)| to);
        let is_root = |m: &&Mount| m.mount_point == "/" && !self.mounts.iter().any(|other| other.id == m.parent && other.id != m.id);
        let mut at = self.mounts.iter().find(is_root)?;
        let mut points: Vec<&str> = path.match_indices('/').filter_map(|(i, _)| path.get(..i)).filter(|p| !p.is_empty()).collect();
        points.push(path.trim_end_matches('/'));
        at = self.topmost(at, "/");
        for point in points.into_iter().filter(|p| !p.is_empty()) {
            at = self.topmost(at, point);
        }
        Some(at)
    }

    /// What covers `on` at this point, if anything does; mounts can be stacked. Ids never repeat on the way, so this ends.
    fn topmost<'a>(&'a self, on: &'a Mount, point: &str) -> &'a Mount {
        let mut at = on;
        for _ in 0..self.mounts.len() {
            let Some(child) = self.mounts.iter().rev().find(|m| m.parent == at.id && m.id != at.id && m.mount_point == point) else {
                break;
            };
            at = child;
        }
        at
    }

    /// Every mount of the superblock on a device.
    pub fn of_device<'a>(&'a self, device: &'a Device) -> impl Iterator<Item = &'a Mount> + 'a {
        self.mounts.iter().filter(|mount| self.is_on(mount, device))
    }

    /// Whether a mount's superblock is on a device: by number, else by the kernel's name or that in the mount's source. The number of a
    /// btrfs mount is no device's, so that it is found by name only.
    #[must_use]
    pub fn is_on(&self, mount: &Mount, device: &Device) -> bool {
        device.number == Some(mount.device) || device.name.as_deref().is_some_and(|name| self.device_name(mount) == Some(name))
    }

    /// The kernel's name of the device that is mounted, as far as it is known.
    #[must_use]
    pub fn device_name<'a>(&'a self, mount: &'a Mount) -> Option<&'a str> {
        let known = self.device_names.iter().find(|(number, _)| *number == mount.device).map(|(_, name)| name.as_str());
        known.or_else(|| mount.source.strip_prefix("/dev/").filter(|name| !name.is_empty()))
    }

    /// The pod whose volume is on a device: `(uid, namespace/name if known)`.
    #[must_use]
    pub fn pod_of(&self, device: &Device) -> Option<(String, Option<String>)> {
        self.of_device(device).find_map(|mount| pod_of_path(&mount.mount_point)).map(|uid| {
            let name = self.pod_name(&uid);
            (uid, name)
        })
    }

    /// `namespace/name` of a pod.
    #[must_use]
    pub fn pod_name(&self, uid: &str) -> Option<String> {
        self.pods.iter().find(|(known, _)| known == uid).map(|(_, name)| name.clone())
    }

    /// Whether a mount is read-only because somebody wrote down that it should be (decision 9): not because it was so when first seen.
    #[must_use]
    pub fn is_read_only_by_design(&self, mount: &Mount) -> bool {
        let is_read_only = mount.read_only || mount.super_state == SuperState::ReadOnly;
        let says_command_line = mount.mount_point == "/" && self.root_read_only && !self.fstab.contains(&mount.mount_point);
        let cannot_write = matches!(mount.fs_type.as_str(), "squashfs" | "erofs" | "iso9660" | "cramfs" | "romfs" | "udf");
        is_read_only && (cannot_write || self.fstab_read_only.contains(&mount.mount_point) || says_command_line)
    }
}

/// The pod UID in the path of a volume: `.../pods/UID/volumes/...` or `.../pods/UID/volume-subpaths/...` below any kubelet directory.
#[must_use]
pub fn pod_of_path(path: &str) -> Option<String> {
    let (_, below) = path.split_once("/pods/")?;
    let (uid, rest) = below.split_once('/')?;
    let is_volume = rest.starts_with("volumes/") || rest.starts_with("volume-subpaths/");
    let is_uid = uid.len() >= 32 && uid.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-');
    (is_volume && is_uid).then(|| uid.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(id: u64, parent: u64, mount_point: &str) -> Mount {
        Mount {
            id,
            parent,
            device: DeviceNumber { major: 8, minor: id as u32 },
            root: "/".into(),
            mount_point: mount_point.into(),
            read_only: false,
            fs_type: "ext4".into(),
            source: format!("/dev/sd{id}"),
            super_state: SuperState::ReadWrite,
        }
    }

    fn table(mounts: Vec<Mount>) -> MountTable {
        MountTable { mounts, ..MountTable::default() }
    }

    #[test]
    fn a_path_lies_on_the_nearest_mount_above_it() {
        let table = table(vec![mount(1, 0, "/"), mount(2, 1, "/var"), mount(3, 2, "/var/lib/kubelet"), mount(4, 1, "/variant")]);
        let on = |path: &str| table.holding(path).unwrap().id;
        assert_eq!((on("/"), on("/etc/kubernetes"), on("/var"), on("/var/lib"), on("/var/lib/kubelet/pods")), (1, 1, 2, 2, 3));
    }

    #[test]
    fn a_later_mount_covers_an_earlier_one_and_all_below_it() {
        let table = table(vec![mount(1, 0, "/"), mount(2, 1, "/var"), mount(3, 2, "/var/log"), mount(4, 2, "/var")]);
        assert_eq!(table.holding("/var/log").unwrap().id, 4);
    }

    #[test]
    fn a_link_is_followed() {
        let mut table = table(vec![mount(1, 0, "/"), mount(2, 1, "/data")]);
        table.links = vec![("/var/lib/kubelet".into(), "/data/kubelet".into())];
        assert_eq!(table.holding("/var/lib/kubelet").unwrap().id, 2);
    }

    #[test]
    fn a_loop_of_parents_ends() {
        let table = table(vec![mount(1, 2, "/"), mount(2, 1, "/"), mount(3, 3, "/")]);
        let _ = table.holding("/var");
    }

    #[test]
    fn read_only_by_design_is_what_is_written_down() {
        let mut root = mount(1, 0, "/");
        let mut table = table(vec![]);
        assert!(!table.is_read_only_by_design(&root));
        root.super_state = SuperState::ReadOnly;
        assert!(!table.is_read_only_by_design(&root), "it was read-only when first seen: that is no design");
        table.root_read_only = true;
        assert!(table.is_read_only_by_design(&root));
        table.fstab = vec!["/".into()];
        assert!(!table.is_read_only_by_design(&root), "the initramfs mounts read-only, fstab wants it writable");
        table.fstab_read_only = vec!["/".into()];
        assert!(table.is_read_only_by_design(&root));
        root.super_state = SuperState::Emergency;
        assert!(!table.is_read_only_by_design(&root));
    }

    #[test]
    fn a_pod_is_named_by_the_path_of_its_volume() {
        let uid = "4f0c5c0e-7a57-4b6f-9d0e-2f2b2f1f8a11";
        assert_eq!(pod_of_path(&format!("/var/lib/kubelet/pods/{uid}/volumes/kubernetes.io~csi/pvc-1/mount")), Some(uid.into()));
        assert_eq!(pod_of_path(&format!("/var/lib/kubelet/pods/{uid}/etc-hosts")), None);
        assert_eq!(pod_of_path("/var/lib/kubelet/pods/x/volumes/y"), None);
    }
}
