//! A filesystem of a test's own, on a file, that can be broken and mended.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context, Result};

use crate::{process::output, undo::Undo, wait};

/// How long somebody may have a file open.
const BUSY: Duration = Duration::from_secs(10);

/// Undone from the top: thawed, so that nothing hangs on it; unmounted; its device and files removed. `mountpoint` would not do: it asks the
/// filesystem, and one that was shut down does not answer.
const REMOVE: &str = "
    if grep -qF \" $0 \" /proc/self/mountinfo; then fsfreeze --unfreeze \"$0\"; umount \"$0\" || exit 1; fi
    if losetup \"$1\"; then losetup --detach \"$1\" || exit 1; fi
    rm -rf --one-file-system \"$2\"";

/// Which kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Mounted with `errors=remount-ro`.
    Ext4,
    /// As it comes.
    Xfs,
}

/// A mounted filesystem. It is gone when this is dropped.
#[derive(Debug)]
pub struct Filesystem {
    kind: Kind,
    device: String,
    mount_point: PathBuf,
    _undo: Undo,
}

impl Filesystem {
    /// Makes and mounts one.
    ///
    /// # Errors
    /// If that cannot be done, with what the program said.
    pub fn new(kind: Kind) -> Result<Self> {
        Self::mounted_below(kind, "m")
    }

    /// Makes one and mounts it at this path below a directory of its own.
    ///
    /// # Errors
    /// If that cannot be done, with what the program said.
    pub fn mounted_below(kind: Kind, path: &str) -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("nodeward-test-").tempdir()?.keep();
        let (image, mount_point) = (directory.join("image"), directory.join(path));
        // XFS takes nothing below 300 MiB. Both files are sparse.
        let (size, make) = match kind {
            Kind::Ext4 => (64 << 20, "mkfs.ext4"),
            Kind::Xfs => (320 << 20, "mkfs.xfs"),
        };
        fs::create_dir_all(&mount_point)?;
        fs::File::create(&image)?.set_len(size)?;
        output(Command::new(make).arg("-q").arg(&image))?;
        let device = output(Command::new("losetup").args(["--find", "--show"]).arg(&image))?.trim().to_owned();
        let undo = Undo::by(REMOVE, &[mount_point.as_os_str(), device.as_ref(), directory.as_os_str()])?;
        let filesystem = Self { kind, device, mount_point, _undo: undo };
        filesystem.mount()?;
        Ok(filesystem)
    }

    /// Where it is mounted.
    #[must_use]
    pub fn mount_point(&self) -> &Path {
        &self.mount_point
    }

    /// The kernel's name of its device: `loop0`.
    #[must_use]
    pub fn device(&self) -> &str {
        self.device.trim_start_matches("/dev/")
    }

    /// Mounts it.
    ///
    /// # Errors
    /// If it cannot be.
    pub fn mount(&self) -> Result<()> {
        let options = match self.kind {
            Kind::Ext4 => "errors=remount-ro",
            Kind::Xfs => "defaults",
        };
        run(Command::new("mount").args(["-o", options, &self.device]).arg(&self.mount_point))
    }

    /// Unmounts it.
    ///
    /// # Errors
    /// If it is busy.
    pub fn unmount(&self) -> Result<()> {
        patiently("to unmount", Command::new("umount").arg(&self.mount_point))
    }

    /// Mounts it with other options, as an administrator does: `ro`.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn remount(&self, options: &str) -> Result<()> {
        patiently("to remount", Command::new("mount").args(["-o", &format!("remount,{options}")]).arg(&self.mount_point))
    }

    /// Makes ext4 report an error of itself, which turns it read-only.
    ///
    /// # Errors
    /// If it is not mounted, or another kind.
    pub fn break_ext4(&self, text: &str) -> Result<()> {
        let trigger = format!("/sys/fs/ext4/{}/trigger_fs_error", self.device());
        fs::write(&trigger, text).with_context(|| format!("cannot write {trigger}"))
    }

    /// Shuts it down: XFS and ext4 share the request (`XFS_IOC_GOINGDOWN`, `EXT4_IOC_SHUTDOWN`).
    ///
    /// # Errors
    /// If it cannot be.
    pub fn shut_down(&self) -> Result<()> {
        run(Command::new("xfs_io").args(["-x", "-c", "shutdown"]).arg(&self.mount_point))
    }

    /// Checks and mends what is not mounted.
    ///
    /// # Errors
    /// If it could not be mended.
    pub fn mend(&self) -> Result<()> {
        match self.kind {
            Kind::Ext4 => {
                let check = Command::new("e2fsck").args(["-fy", &self.device]).output().context("cannot start e2fsck")?;
                // 1: there were errors, and they have been corrected.
                anyhow::ensure!(matches!(check.status.code(), Some(0 | 1)), "e2fsck: {}", String::from_utf8_lossy(&check.stdout));
                Ok(())
            }
            // Its log is replayed by the next mount.
            Kind::Xfs => Ok(()),
        }
    }
}

/// A probe of the agent makes it busy for some milliseconds.
fn patiently(what: &str, command: &mut Command) -> Result<()> {
    wait::until(what, BUSY, || run(command))
}

fn run(command: &mut Command) -> Result<()> {
    output(command).map(drop)
}
