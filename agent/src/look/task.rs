//! The state of one task, as `/proc` shows it now: who it is, whose it is, and what it waits for.

mod call;
mod object;
mod owner;
mod stack;
mod wait;

use std::{
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use agent_core::{
    observation::TaskSeen,
    task::{Owner, Task, WaitsFor},
};
use rustix::{
    fs::{Mode, OFlags, open, openat},
    io::Errno,
};

use super::Apart;
use crate::host::{Host, PF_KTHREAD, read_whole};

/// Looks at the thread with this id.
pub(super) fn look(host: &Host, aside: &Apart, pid: u32) -> TaskSeen {
    if host.is_nested() {
        return TaskSeen::OtherNamespace;
    }
    match read(host, aside, pid) {
        Ok(task) => TaskSeen::There(Box::new(task)),
        Err(e) if is_gone(&e) => TaskSeen::Gone,
        Err(e) => TaskSeen::Unreadable(format!("/proc/{pid}: {e}")),
    }
}

/// Files of a task that has just ended answer `ESRCH`.
fn is_gone(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOENT | Errno::SRCH))
}

/// The directory of one thread, held open: another thread with the same id later is another directory.
pub(super) struct Directory {
    fd: OwnedFd,
    path: PathBuf,
}

impl Directory {
    fn open(host: &Host, pid: u32) -> io::Result<Self> {
        let path = host.proc().join(format!("{pid}/task/{pid}"));
        Ok(Self { fd: open(&path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?, path })
    }

    /// Reads one of its files whole.
    pub(super) fn read(&self, file: &str) -> io::Result<Vec<u8>> {
        read_whole(openat(&self.fd, file, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?.into())
    }

    /// Target of one of its links, as a name: nothing is followed.
    pub(super) fn link(&self, link: &str) -> io::Result<PathBuf> {
        use std::os::unix::ffi::OsStringExt as _;
        let target = rustix::fs::readlinkat(&self.fd, link, Vec::new())?;
        Ok(PathBuf::from(std::ffi::OsString::from_vec(target.into_bytes())))
    }

    /// Opens where one of its links leads, without using it.
    pub(super) fn follow(&self, link: &str) -> io::Result<OwnedFd> {
        Ok(openat(&self.fd, link, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?)
    }

    /// Where it is, for those who may wait for it on a thread of their own.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

fn read(host: &Host, aside: &Apart, pid: u32) -> io::Result<Task> {
    let directory = Directory::open(host, pid)?;
    let stat = Stat::parse(&directory.read("stat")?).ok_or_else(|| malformed("stat"))?;
    let status = directory.read("status")?;
    let tgid = number(&status, "Tgid:").and_then(|n| u32::try_from(n).ok()).ok_or_else(|| malformed("status"))?;
    let count = |name| number(&status, name).ok_or_else(|| malformed("status"));
    let switches = count("voluntary_ctxt_switches:")?.saturating_add(count("nonvoluntary_ctxt_switches:")?);
    let is_kernel_thread = stat.flags & PF_KTHREAD != 0;
    let owner = if tgid == 1 {
        Owner::Init
    } else if is_kernel_thread {
        Owner::Kernel
    } else {
        owner::of_cgroups(&directory.read("cgroup")?, |uid| owner::pod(host, aside, uid))
    };
    // What a task that runs or sleeps lightly waits for is nobody's trouble.
    let waits_for = match stat.state {
        'D' if is_kernel_thread => wait::of_kernel_thread(host, &directory, &stat.comm),
        'D' => wait::of_process(host, &directory, aside),
        _ => WaitsFor::Unknown,
    };
    Ok(Task { pid, tgid, start_ticks: stat.start_ticks, comm: stat.comm, state: stat.state, switches, owner, waits_for })
}

fn malformed(file: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{file} is not of the shape that we know"))
}

/// The number behind a name at the beginning of a line of `status`.
fn number(status: &[u8], name: &str) -> Option<u64> {
    String::from_utf8_lossy(status).lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}

/// What we need of `/proc/PID/stat` (`Documentation/filesystems/proc.rst` table 1-4).
struct Stat {
    comm: String,
    state: char,
    flags: u64,
    start_ticks: u64,
}

impl Stat {
    /// The name may hold anything, also `) R 1`: it ends at the last parenthesis.
    fn parse(stat: &[u8]) -> Option<Self> {
        let stat = String::from_utf8_lossy(stat);
        let (_, from_name) = stat.split_once('(')?;
        let (comm, rest) = from_name.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        // The first of these is field 3.
        let field = |number: usize| fields.get(number - 3);
        Some(Self {
            comm: comm.into(),
            state: field(3)?.chars().next()?,
            flags: field(9)?.parse().ok()?,
            start_ticks: field(22)?.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{config::HostSettings, host::tests::FakeHost};

    fn aside() -> Apart {
        Apart::new("test", 4)
    }

    #[test]
    fn a_name_may_hold_parentheses() {
        let stat = Stat::parse(b"7 (a) R 1 (b) D 1 7 7 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 12345 0 0\n").unwrap();
        assert_eq!((stat.comm.as_str(), stat.state, stat.flags, stat.start_ticks), ("a) R 1 (b", 'D', 0x0040_0000, 12345));
        assert!(Stat::parse(b"7 (a) D 1").is_none());
    }

    #[test]
    fn this_thread_is_there_and_runs() {
        let host = Host::new(&HostSettings::default());
        let own = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
        let TaskSeen::There(task) = look(&host, &aside(), own) else { panic!("not there") };
        assert_eq!((task.pid, task.tgid, task.state), (own, std::process::id(), 'R'));
        assert!(task.start_ticks > 0);
    }

    #[test]
    fn kthreadd_is_a_kernel_thread_and_init_is_init() {
        let host = Host::new(&HostSettings::default());
        let owner = |pid| {
            let seen = look(&host, &aside(), pid);
            let TaskSeen::There(task) = seen else { panic!("{seen:?}") };
            task.owner
        };
        assert_eq!(owner(1), Owner::Init);
        assert_eq!(owner(2), Owner::Kernel);
    }

    #[test]
    fn a_task_that_is_not_there_is_gone() {
        let host = Host::new(&HostSettings::default());
        assert_eq!(look(&host, &aside(), u32::MAX), TaskSeen::Gone);
    }

    #[test]
    fn in_a_nested_namespace_nothing_is_looked_up() {
        assert_eq!(look(&FakeHost::new().host(), &aside(), 1), TaskSeen::OtherNamespace);
    }

    #[test]
    fn what_has_not_the_known_shape_is_unreadable() {
        let fake = FakeHost::new().with("proc/2/stat", "2 (kthreadd) S 0 0 0 0 -1 2129984 0").with("proc/9/task/9/stat", "9 nonsense");
        let TaskSeen::Unreadable(why) = look(&fake.host(), &aside(), 9) else { panic!("readable") };
        assert_eq!(why, "/proc/9: stat is not of the shape that we know");
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_stat_or_none(bytes: Vec<u8>) {
            let _ = Stat::parse(&bytes);
            let _ = number(&bytes, "Tgid:");
        }
    }
}
