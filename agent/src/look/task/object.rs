//! The mount that a hanging process works on: found from its system call without touching that mount, for it may hang too.

use std::{
    fs::File,
    os::unix::fs::FileExt as _,
    path::{Component, Path, PathBuf},
    time::Duration,
};

use agent_core::mount::MountTable;
use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};

use super::{
    Directory,
    call::{self, FileArgument, From},
};
use crate::{
    host::mountinfo::{self, MountLine},
    look::{Apart, filesystem},
};

/// Reading a process' memory waits for its `mmap_lock`, which a hanging thread of it may hold.
const PATIENCE: Duration = Duration::from_millis(200);

/// `PATH_MAX`.
const LONGEST_PATH: usize = 4096;

/// What a system call works on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Object {
    /// A file on this mount of the process' own mount namespace.
    On(Box<MountLine>),
    /// Something open that is on no mount: a socket, a pipe, an event.
    NoFile,
    /// It cannot be told.
    Unknown,
}

/// What the current system call of a process works on.
pub(super) fn of(directory: &Directory, aside: &Apart) -> Object {
    find(directory, aside).unwrap_or(Object::Unknown)
}

fn find(directory: &Directory, aside: &Apart) -> Option<Object> {
    let argument = call::file_argument(&directory.read("syscall").ok()?)?;
    let mounts = Mounts::parse(&directory.read("mountinfo").ok()?);
    match argument {
        FileArgument::Descriptor(fd) => mounts.of_descriptor(directory, fd),
        FileArgument::Path { from, address } => match (string_at(directory, aside, address)?, from) {
            // AT_EMPTY_PATH.
            (path, From::Descriptor(fd)) if path.as_os_str().is_empty() => mounts.of_descriptor(directory, fd),
            (path, from) => Some(Object::On(Box::new(mounts.holding(directory, &absolute(directory, from, &path)?)?.clone()))),
        },
    }
}

/// The mounts as the process sees them.
struct Mounts {
    lines: Vec<MountLine>,
    table: MountTable,
}

impl Mounts {
    fn parse(mountinfo: &[u8]) -> Self {
        let (lines, _) = mountinfo::parse(mountinfo);
        let mounts = lines.iter().map(|line| line.mount.clone()).collect();
        Self { lines, table: MountTable { mounts, ..MountTable::default() } }
    }

    fn by_id(&self, id: u64) -> Option<&MountLine> {
        self.lines.iter().find(|line| line.mount.id == id)
    }

    /// What an open descriptor is of. `fdinfo` asks nothing of the file.
    fn of_descriptor(&self, directory: &Directory, fd: u32) -> Option<Object> {
        let id = filesystem::mount_id_in(&directory.read(&format!("fdinfo/{fd}")).ok()?)?;
        Some(self.by_id(id).map_or(Object::NoFile, |line| Object::On(Box::new(line.clone()))))
    }

    /// The mount that holds a path, by its words alone; corrected by a walk through what the kernel has in its cache where that leads.
    fn holding(&self, directory: &Directory, path: &Path) -> Option<&MountLine> {
        let by_words = self.by_id(self.table.holding(path.to_str()?)?.id)?;
        if super::wait::is_remote(&by_words.mount.fs_type) {
            return Some(by_words);
        }
        Some(walk(directory, path).and_then(|id| self.by_id(id)).unwrap_or(by_words))
    }
}

/// Walks a path, or if there is no such file (yet) that of its directory, from the process' root, through cached entries only
/// (`RESOLVE_CACHED`, since 5.12): that never waits. Gives the mount it ends on.
fn walk(directory: &Directory, path: &Path) -> Option<u64> {
    let root = directory.follow("root").ok()?;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::CACHED;
    let open = |path: &Path| openat2(&root, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve).ok();
    filesystem::mount_id_of(&open(path).or_else(|| open(path.parent()?))?).ok()
}

/// A path of a call as one from the process' root.
fn absolute(directory: &Directory, from: From, path: &Path) -> Option<PathBuf> {
    if path.is_absolute() {
        return Some(normal(path));
    }
    let base = match from {
        From::WorkingDirectory => directory.link("cwd"),
        From::Descriptor(fd) => directory.link(&format!("fd/{fd}")),
    };
    let root = directory.link("root").ok()?;
    let base = Path::new("/").join(base.ok()?.strip_prefix(root).ok()?);
    Some(normal(&base.join(path)))
}

/// Without `.` and `..`, as if there were no symbolic links.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::from("/");
    for component in path.components() {
        match component {
            Component::Normal(name) => normal.push(name),
            Component::ParentDir => drop(normal.pop()),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    normal
}

/// A string in the memory of a process: what it passed to the kernel, if it has not changed it since.
fn string_at(directory: &Directory, aside: &Apart, address: u64) -> Option<PathBuf> {
    let memory = directory.path().join("mem");
    let read = move || -> std::io::Result<Vec<u8>> {
        let memory = File::open(memory)?;
        let mut bytes = vec![0; LONGEST_PATH];
        let length = memory.read_at(&mut bytes, address)?;
        bytes.truncate(length);
        Ok(bytes)
    };
    let bytes = aside.run_blocking(PATIENCE, read).ok()?.ok()?;
    let end = bytes.iter().position(|b| *b == 0)?;
    Some(String::from_utf8(bytes.get(..end)?.to_vec()).ok()?.into())
}

#[cfg(test)]
mod tests {
    use std::{
        io::Read as _,
        os::{
            fd::{AsRawFd as _, OwnedFd},
            unix::net::UnixStream,
        },
        sync::mpsc,
    };

    use rustix::thread::gettid;

    use super::*;
    use crate::{config::HostSettings, host::Host};

    #[test]
    fn a_path_is_made_plain_by_its_words() {
        assert_eq!(normal(Path::new("/a/./b//../c/")), Path::new("/a/c"));
        assert_eq!(normal(Path::new("/../..")), Path::new("/"));
    }

    /// What this thread's directory shows while it runs does not change under the test.
    fn own() -> Directory {
        let own = gettid().as_raw_nonzero().get().unsigned_abs();
        Directory::open(&Host::new(&HostSettings::default()), own).unwrap()
    }

    fn aside() -> Apart {
        Apart::new("test", 4)
    }

    #[test]
    fn a_string_is_read_from_the_memory_of_the_process() {
        let text = b"/some/path\0rest";
        assert_eq!(string_at(&own(), &aside(), text.as_ptr() as u64), Some("/some/path".into()));
        assert_eq!(string_at(&own(), &aside(), c"".as_ptr() as u64), Some("".into()));
        assert_eq!(string_at(&own(), &aside(), 8), None);
    }

    #[test]
    fn a_relative_path_begins_where_the_process_is() {
        let cwd = std::env::current_dir().unwrap();
        assert_eq!(absolute(&own(), From::WorkingDirectory, Path::new("../x")), Some(cwd.parent().unwrap().join("x")));
        assert_eq!(absolute(&own(), From::WorkingDirectory, Path::new("/x/../y")), Some("/y".into()));
        let place = tempfile::tempdir().unwrap();
        let open = File::open(place.path()).unwrap();
        let from = From::Descriptor(open.as_raw_fd().unsigned_abs());
        assert_eq!(absolute(&own(), from, Path::new("x")), Some(place.path().join("x")));
    }

    #[test]
    fn a_link_is_followed_to_the_mount_behind_it() {
        let place = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/dev/shm", place.path().join("link")).unwrap();
        let mounts = Mounts::parse(&own().read("mountinfo").unwrap());
        let id_of = |path: &Path| mounts.holding(&own(), path).unwrap().mount.id;
        let id_at = |path: &Path| filesystem::mount_id_of(&File::open(path).unwrap().into()).unwrap();
        // The walk goes through the cache only: this fills it.
        let expected = id_at(&place.path().join("link"));
        assert_eq!(id_of(&place.path().join("link/nothing")), expected);
        assert_eq!(id_of(&place.path().join("nothing")), id_at(place.path()));
        assert_ne!(expected, id_at(place.path()));
    }

    #[test]
    fn a_thread_that_reads_a_socket_works_on_no_file() {
        let (reader, writer) = UnixStream::pair().unwrap();
        let mut reader = File::from(OwnedFd::from(reader));
        let (tell, told) = mpsc::sync_channel(1);
        let thread = std::thread::spawn(move || {
            tell.send(gettid().as_raw_nonzero().get().unsigned_abs()).unwrap();
            reader.read(&mut [0]).unwrap()
        });
        let directory = Directory::open(&Host::new(&HostSettings::default()), told.recv().unwrap()).unwrap();
        while !directory.read("stat").unwrap().windows(4).any(|w| w == b") S ") || of(&directory, &aside()) == Object::Unknown {
            std::thread::yield_now();
        }
        assert_eq!(of(&directory, &aside()), Object::NoFile);
        drop(writer);
        thread.join().unwrap();
    }
}
