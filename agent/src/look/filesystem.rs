//! The write probe: makes a file without a name on one particular mount, writes a few bytes and asks for them to be on the disk.

use std::{
    io,
    os::fd::{AsFd, AsRawFd as _, OwnedFd},
    path::Path,
};

use agent_core::observation::{Probe, Refusal};
use rustix::{
    fs::{AtFlags, CWD, FileType, Mode, OFlags, fdatasync, fstat, openat, unlinkat},
    io::{Errno, write},
    thread::{CapabilitySet, capabilities},
};

use crate::host::{Host, read_file};

/// What is written. It is gone as soon as the probe ends.
const CONTENT: &[u8] = b"nodeward\n";

/// Where a filesystem knows no files without a name. Always the same name: what a killed probe left behind, the next one removes.
const NAME: &str = ".nodeward-probe";

/// Tries to write on the filesystem mounted at this point by this mount. May hang for as long as the filesystem does.
///
/// The errno of a refusal is what kernels 6.1 to 6.18 were seen to give after ext4 errors, shutdowns of ext4 and XFS, and remounts.
pub(super) fn probe(host: &Host, mount_point: &str, mount_id: u64) -> Probe {
    let place = match host.open(Path::new(mount_point), OFlags::PATH | OFlags::NOFOLLOW, Mode::empty()) {
        Ok(place) => place,
        Err(e) => return unreachable_place(&e),
    };
    match mount_id_of(&place) {
        Ok(found) if found == mount_id => {}
        Ok(_) => return Probe::Gone,
        Err(e) => return Probe::Failed(raw(&e)),
    }
    // XFS refuses already this once it is shut down.
    let written = fstat(&place).and_then(|stat| match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => write_into(&place),
        FileType::RegularFile => write_nothing_to(&place),
        // To open a device or a FIFO would do something to it.
        FileType::Symlink | FileType::Fifo | FileType::Socket | FileType::CharacterDevice | FileType::BlockDevice | FileType::Unknown => {
            Err(Errno::OPNOTSUPP)
        }
    });
    written.map_or_else(|errno| judge(errno, may_write_anywhere()), |()| Probe::Writable)
}

/// The way to the mount point ends before it: nothing is mounted there any more.
fn unreachable_place(error: &io::Error) -> Probe {
    match Errno::from_io_error(error) {
        Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Probe::Gone,
        _ => Probe::Failed(raw(error)),
    }
}

/// Which mount a descriptor is on. Unlike `statx` this asks nothing of the filesystem (`fs/proc/fd.c`).
pub(super) fn mount_id_of(fd: &OwnedFd) -> io::Result<u64> {
    let text = read_file(Path::new(&format!("/proc/self/fdinfo/{}", fd.as_raw_fd())))?;
    mount_id_in(&text).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "fdinfo names no mount"))
}

/// The `mnt_id:` line of an fdinfo file.
pub(super) fn mount_id_in(fdinfo: &[u8]) -> Option<u64> {
    let text = String::from_utf8_lossy(fdinfo);
    text.lines().find_map(|line| line.strip_prefix("mnt_id:")?.trim().parse().ok())
}

fn write_into(directory: &OwnedFd) -> rustix::io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let mode = Mode::RUSR | Mode::WUSR;
    let file = match openat(directory, ".", flags | OFlags::TMPFILE, mode) {
        // ISDIR is what a filesystem without such files answers when the kernel takes the flag for O_DIRECTORY.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => named_file(directory, flags, mode)?,
        other => other?,
    };
    write_out(&file)
}

fn named_file(directory: &OwnedFd, flags: OFlags, mode: Mode) -> rustix::io::Result<OwnedFd> {
    let create = || openat(directory, NAME, flags | OFlags::CREATE | OFlags::EXCL, mode);
    let file = match create() {
        Err(Errno::EXIST) => {
            unlinkat(directory, NAME, AtFlags::empty())?;
            create()?
        }
        other => other?,
    };
    unlinkat(directory, NAME, AtFlags::empty())?;
    Ok(file)
}

fn write_out(file: impl AsFd) -> rustix::io::Result<()> {
    let mut rest = CONTENT;
    while !rest.is_empty() {
        match write(&file, rest) {
            Ok(0) => return Err(Errno::IO),
            Ok(written) => rest = rest.get(written..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
    }
    // Without this the bytes stay in memory, and a device that has died or hangs goes unnoticed.
    sync(file)
}

/// A file that is mounted by itself (`/etc/hostname` of a container) belongs to somebody: it is opened for writing, which tells a read-only
/// mount, and synced, which tells a broken journal; its content is not touched.
fn write_nothing_to(file: &OwnedFd) -> rustix::io::Result<()> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let open = |flags| openat(CWD, &path, flags | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty());
    match open(OFlags::WRONLY) {
        Err(Errno::TXTBSY) => sync(open(OFlags::RDONLY)?),
        opened => sync(opened?),
    }
}

fn sync(file: impl AsFd) -> rustix::io::Result<()> {
    match fdatasync(file) {
        // Some filesystems have nothing to sync.
        Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
        other => other,
    }
}

/// What an errno says about the filesystem. Who may not write everywhere learns nothing from a denial: the permissions of the directory
/// come before everything else.
fn judge(errno: Errno, may_write_anywhere: bool) -> Probe {
    match errno {
        Errno::ROFS => Probe::Refused(Refusal::ReadOnly),
        Errno::IO => Probe::Refused(Refusal::Io),
        Errno::UCLEAN => Probe::Refused(Refusal::Unclean),
        Errno::SHUTDOWN => Probe::Refused(Refusal::Shutdown),
        Errno::NOSPC | Errno::DQUOT => Probe::Writable,
        // An immutable root directory (OSTree), a security module.
        Errno::ACCESS | Errno::PERM if may_write_anywhere => Probe::Writable,
        other => Probe::Failed(other.raw_os_error()),
    }
}

fn may_write_anywhere() -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::DAC_OVERRIDE))
}

fn raw(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or_else(|| Errno::IO.raw_os_error())
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;
    use crate::{config::HostSettings, host::mountinfo};

    /// This machine, through a root of our own so that a test needs no right to enter PID 1's.
    fn host() -> Host {
        Host::new(&HostSettings { root: "/".into(), ..HostSettings::default() })
    }

    /// A directory, and the mount that it is on.
    fn place() -> (tempfile::TempDir, u64) {
        let place = tempfile::tempdir().unwrap();
        let fd = rustix::fs::open(place.path(), OFlags::PATH, Mode::empty()).unwrap();
        let id = mount_id_of(&fd).unwrap();
        (place, id)
    }

    #[test]
    fn a_writable_filesystem_is_writable_and_nothing_is_left_behind() {
        let (place, id) = place();
        assert_eq!(probe(&host(), place.path().to_str().unwrap(), id), Probe::Writable);
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
    }

    #[test]
    fn another_mount_at_the_same_place_is_gone() {
        let (place, id) = place();
        assert_eq!(probe(&host(), place.path().to_str().unwrap(), id + 1_000_000), Probe::Gone);
    }

    #[test]
    fn a_place_that_is_not_there_is_gone() {
        let (place, id) = place();
        fs::write(place.path().join("file"), "").unwrap();
        symlink("/", place.path().join("link")).unwrap();
        for missing in ["nothing", "file/below"] {
            assert_eq!(probe(&host(), place.path().join(missing).to_str().unwrap(), id), Probe::Gone);
        }
        assert_eq!(probe(&host(), place.path().join("link").to_str().unwrap(), id), Probe::Failed(95));
    }

    #[test]
    fn a_file_that_is_mounted_by_itself_is_not_changed() {
        let (place, id) = place();
        let file = place.path().join("hostname");
        fs::write(&file, "node1\n").unwrap();
        let before = fs::metadata(&file).unwrap().modified().unwrap();
        assert_eq!(probe(&host(), file.to_str().unwrap(), id), Probe::Writable);
        assert_eq!(fs::read(&file).unwrap(), b"node1\n");
        assert_eq!(fs::metadata(&file).unwrap().modified().unwrap(), before);
    }

    #[test]
    fn proc_can_be_looked_at_without_harm() {
        let (lines, _) = mountinfo::parse(&fs::read("/proc/self/mountinfo").unwrap());
        let proc = lines.iter().find(|line| line.mount.mount_point == "/proc").unwrap();
        assert!(matches!(probe(&host(), "/proc", proc.mount.id), Probe::Failed(_) | Probe::Writable));
    }

    #[test]
    fn where_files_need_a_name_it_is_removed_even_if_a_killed_probe_left_it() {
        let (place, _) = place();
        fs::write(place.path().join(NAME), "left behind").unwrap();
        let directory = rustix::fs::open(place.path(), OFlags::PATH, Mode::empty()).unwrap();
        let file = named_file(&directory, OFlags::WRONLY, Mode::RWXU).unwrap();
        write_out(&file).unwrap();
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
    }

    #[test]
    fn an_errno_is_a_fault_a_sign_of_life_or_neither() {
        let cases = [
            (Errno::ROFS, Probe::Refused(Refusal::ReadOnly)),
            (Errno::IO, Probe::Refused(Refusal::Io)),
            (Errno::UCLEAN, Probe::Refused(Refusal::Unclean)),
            (Errno::SHUTDOWN, Probe::Refused(Refusal::Shutdown)),
            (Errno::NOSPC, Probe::Writable),
            (Errno::DQUOT, Probe::Writable),
            (Errno::ACCESS, Probe::Writable),
            (Errno::STALE, Probe::Failed(116)),
        ];
        for (errno, expected) in cases {
            assert_eq!(judge(errno, true), expected);
        }
        assert_eq!(judge(Errno::ACCESS, false), Probe::Failed(13));
        assert_eq!(judge(Errno::ROFS, false), Probe::Refused(Refusal::ReadOnly));
    }

    #[test]
    fn the_mount_of_a_descriptor_is_read_from_fdinfo() {
        assert_eq!(mount_id_in(b"pos:\t0\nflags:\t0100000\nmnt_id:\t27\nino:\t5\n"), Some(27));
        assert_eq!(mount_id_in(b"pos:\t0\nmnt_id:\tx\n"), None);
    }
}
