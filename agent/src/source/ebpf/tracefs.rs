//! Finds the tracing filesystem without leaving a mount behind: the host's own if it is mounted, else one that only a descriptor of ours knows.

use std::{
    io::{self, Read as _},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{AtFlags, Dir, Mode, OFlags, openat},
    mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen},
};

use crate::host::Host;

/// Where distributions mount it; the second is what 4.0 and older knew.
const USUAL: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// Largest format file that is read; the longest of ours has 2 KiB.
const LONGEST_FILE: u64 = 64 * 1024;

/// The root of the tracing filesystem.
#[derive(Debug)]
pub(super) struct Tracefs(OwnedFd);

impl Tracefs {
    /// # Errors
    /// Why there is none, for people.
    pub(super) fn find(host: &Host) -> Result<Self, String> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        for path in USUAL {
            if let Ok(root) = host.open(Path::new(path), flags, Mode::empty())
                && openat(&root, "events", flags, Mode::empty()).is_ok()
            {
                return Ok(Self(root));
            }
        }
        let detached = || {
            let filesystem = fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC)?;
            fsconfig_create(&filesystem)?;
            let attributes = MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOEXEC | MountAttrFlags::MOUNT_ATTR_NOSUID;
            fsmount(&filesystem, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
        };
        detached().map(Self).map_err(|e| format!("no tracefs: not mounted, and mounting it for ourselves failed: {e}"))
    }

    /// Where a tracepoint is: in its usual group, or in whichever has it.
    pub(super) fn tracepoint(&self, group: &str, name: &str) -> io::Result<Tracepoint<'_>> {
        let usual = Tracepoint { root: self, path: Path::new("events").join(group).join(name) };
        if self.read(&usual.path.join("id")).is_ok() {
            return Ok(usual);
        }
        let events = openat(&self.0, "events", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        for entry in Dir::read_from(&events)? {
            let group = entry?.file_name().to_string_lossy().into_owned();
            let path = Path::new("events").join(group).join(name);
            let is_there = rustix::fs::statat(&self.0, path.join("id"), AtFlags::empty()).is_ok();
            if is_there {
                return Ok(Tracepoint { root: self, path });
            }
        }
        Err(io::ErrorKind::NotFound.into())
    }

    fn read(&self, path: &Path) -> io::Result<String> {
        let file = openat(&self.0, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        let mut text = String::new();
        std::fs::File::from(file).take(LONGEST_FILE).read_to_string(&mut text)?;
        Ok(text)
    }
}

/// One tracepoint.
#[derive(Debug)]
pub(super) struct Tracepoint<'a> {
    root: &'a Tracefs,
    path: PathBuf,
}

impl Tracepoint<'_> {
    /// Its number, by which a perf event is opened.
    pub(super) fn id(&self) -> io::Result<u64> {
        self.root.read(&self.path.join("id"))?.trim().parse().map_err(io::Error::other)
    }

    /// Its `format` file.
    pub(super) fn format(&self) -> io::Result<String> {
        self.root.read(&self.path.join("format"))
    }
}
