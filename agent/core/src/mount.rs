//! The host's mount table (`/proc/1/mountinfo`), and what says which of it is read-only by design.

use crate::device::DeviceNumber;

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
}
