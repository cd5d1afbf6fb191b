//! The host as seen from the agent, which may live in a container: its root, its proc, its names for things.

mod device;
mod fstab;
pub mod mountinfo;
mod pod;

use std::{
    fs::File,
    io::{self, Read as _},
    os::fd::{AsRawFd as _, OwnedFd},
    path::{Path, PathBuf},
};

pub use fstab::Fstab;
use rustix::{
    fs::{CWD, Mode, OFlags, ResolveFlags, mkdirat, open, openat2},
    io::Errno,
};

use crate::config::HostSettings;

/// No file of the host that we read whole (fstab, manifests, proc files) comes near this; what is longer is not what it should be.
const LONGEST_FILE: u64 = 1 << 20;

/// `openat2` answers `EAGAIN` when a rename raced with a `..` in the path (`Documentation/filesystems/path-lookup`); then it is tried again.
const LOOKUP_ATTEMPTS: usize = 8;

/// Flag of a kernel thread in field 9 of `/proc/PID/stat` (`include/linux/sched.h`).
pub(crate) const PF_KTHREAD: u64 = 0x0020_0000;

/// Where the host is.
#[derive(Clone, Debug)]
pub struct Host {
    root: PathBuf,
    proc: PathBuf,
    manifest_directory: PathBuf,
    nested: bool,
}

impl Host {
    /// The host that the settings point to. If the configured root may not be entered (PID 1 has capabilities that we lack, or no
    /// `hostPID`) and PID 1 lives in our own mount namespace, our own root is the host's.
    #[must_use]
    pub fn new(settings: &HostSettings) -> Self {
        let mut host = Self {
            root: settings.root.clone(),
            proc: settings.proc.clone(),
            manifest_directory: settings.manifest_directory.clone(),
            nested: false,
        };
        if let Err(e) = host.enter() {
            if host.shares_our_mounts() {
                log::info!("{} cannot be entered ({e}); PID 1 has our own mounts, so / is the host's root", host.root.display());
                host.root = "/".into();
            } else {
                log::warn!("the host's root {} cannot be entered ({e}): nothing on its filesystems can be looked at", host.root.display());
            }
        }
        host.nested = !host.sees_kernel_threads();
        host
    }

    /// The host's proc filesystem.
    #[must_use]
    pub fn proc(&self) -> &Path {
        &self.proc
    }

    /// Mount table of the host's PID 1.
    #[must_use]
    pub fn mountinfo(&self) -> PathBuf {
        self.proc.join("1/mountinfo")
    }

    /// Whether proc shows a PID namespace other than the kernel's first one: then a pid that the kernel names cannot be looked up.
    #[must_use]
    pub fn is_nested(&self) -> bool {
        self.nested
    }

    /// Path of a file of the host as this process can give it to others. Absolute symbolic links on it lead into *our* root: to open
    /// something, prefer [`Host::open`].
    #[must_use]
    pub fn path(&self, on_host: &Path) -> PathBuf {
        self.root.join(on_host.strip_prefix("/").unwrap_or(on_host))
    }

    /// Opens a file of the host; symbolic links stay inside its root.
    ///
    /// # Errors
    /// Those of `openat2` (since 5.6).
    pub fn open(&self, on_host: &Path, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
        let root = self.enter()?;
        let mut last = Errno::AGAIN;
        for _ in 0..LOOKUP_ATTEMPTS {
            match openat2(&root, on_host, flags | OFlags::CLOEXEC, mode, ResolveFlags::IN_ROOT) {
                Err(e @ (Errno::AGAIN | Errno::INTR)) => last = e,
                other => return Ok(other?),
            }
        }
        Err(last.into())
    }

    /// Opens a directory of the host, made with mode 0700 where it is missing, its parents too.
    ///
    /// # Errors
    /// Those of `openat2` and `mkdir`.
    pub fn open_or_make_directory(&self, on_host: &Path) -> io::Result<OwnedFd> {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY;
        match (self.open(on_host, flags, Mode::empty()), on_host.parent(), on_host.file_name()) {
            (Err(e), Some(parent), Some(name)) if e.kind() == io::ErrorKind::NotFound => {
                let parent = self.open_or_make_directory(parent)?;
                match mkdirat(&parent, name, Mode::RWXU) {
                    Err(e) if e != Errno::EXIST => Err(e.into()),
                    _ => self.open(on_host, flags, Mode::empty()),
                }
            }
            (opened, _, _) => opened,
        }
    }

    /// Reads a file of the host whole.
    ///
    /// # Errors
    /// Those of opening and reading; a file longer than 1 MiB is refused.
    pub fn read(&self, on_host: &Path) -> io::Result<Vec<u8>> {
        // A FIFO in its place must not hold us up.
        read_whole(File::from(self.open(on_host, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty())?))
    }

    /// Where a path leads when symbolic links are followed; what does not exist of it is kept as it is. `None` if it cannot be told.
    #[must_use]
    pub fn real_path(&self, on_host: &str) -> Option<String> {
        let link = |fd: &OwnedFd| std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())).ok();
        let root = link(&self.enter().ok()?)?;
        for existing in Path::new(on_host).ancestors() {
            if let Ok(fd) = self.open(existing, OFlags::PATH, Mode::empty()) {
                let real = Path::new("/").join(link(&fd)?.strip_prefix(root).ok()?);
                let missing = Path::new(on_host).strip_prefix(existing).ok()?;
                let whole = if missing.as_os_str().is_empty() { real } else { real.join(missing) };
                return Some(whole.to_str()?.to_owned());
            }
        }
        None
    }

    /// Id of this boot.
    ///
    /// # Errors
    /// If proc cannot be read.
    pub fn boot_id(&self) -> io::Result<String> {
        self.word("sys/kernel/random/boot_id")
    }

    /// Version of the running kernel: `6.18.44`.
    ///
    /// # Errors
    /// If proc cannot be read.
    pub fn kernel_release(&self) -> io::Result<String> {
        self.word("sys/kernel/osrelease")
    }

    /// Name of the machine: of our UTS namespace, which in a pod with `hostNetwork` is the host's.
    ///
    /// # Errors
    /// If proc cannot be read.
    pub fn hostname(&self) -> io::Result<String> {
        self.word("sys/kernel/hostname")
    }

    /// Whether the kernel was told to mount its root read-only. Most distributions have that and remount it; whether it meant to stay is
    /// fstab's to say.
    ///
    /// # Errors
    /// If proc cannot be read.
    pub fn is_root_read_only_by_command_line(&self) -> io::Result<bool> {
        // The last one of both wins (init/do_mounts.c), and what stands behind -- is for init.
        let line = self.word("cmdline")?;
        let last = line.split_whitespace().take_while(|word| *word != "--").filter(|word| matches!(*word, "ro" | "rw")).last();
        Ok(last == Some("ro"))
    }

    fn enter(&self) -> io::Result<OwnedFd> {
        Ok(open(&self.root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
    }

    /// Ids of mounts are unique in the whole kernel, so two namespaces never show the same one.
    fn shares_our_mounts(&self) -> bool {
        let first_id = |path: &Path| Some(read_file(path).ok()?.split(|b| *b == b' ').next()?.to_vec());
        let theirs = first_id(&self.mountinfo());
        theirs.is_some() && theirs == first_id(Path::new("/proc/self/mountinfo"))
    }

    /// `kthreadd` is PID 2 of the first PID namespace, and no other one has kernel threads. Unlike the namespace's inode this can be read
    /// without the right to trace PID 1.
    fn sees_kernel_threads(&self) -> bool {
        let flags = |stat: &[u8]| {
            let after_name = stat.rsplitn(2, |b| *b == b')').next()?;
            std::str::from_utf8(after_name).ok()?.split_whitespace().nth(6)?.parse::<u64>().ok()
        };
        read_file(&self.proc.join("2/stat")).ok().and_then(|stat| flags(&stat)).is_some_and(|flags| flags & PF_KTHREAD != 0)
    }

    fn word(&self, in_proc: &str) -> io::Result<String> {
        Ok(String::from_utf8_lossy(&read_file(&self.proc.join(in_proc))?).trim().into())
    }
}

/// Reads a file of our own view whole.
pub(crate) fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    read_whole(File::from(rustix::fs::openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?))
}

pub(crate) fn read_whole(file: File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(LONGEST_FILE + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LONGEST_FILE {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "longer than 1 MiB"));
    }
    Ok(bytes)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    /// A made-up host below a directory.
    pub(crate) struct FakeHost(pub(crate) tempfile::TempDir);

    impl FakeHost {
        pub(crate) fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        pub(crate) fn with(self, path: &str, content: &str) -> Self {
            let path = self.0.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
            self
        }

        pub(crate) fn host(&self) -> Host {
            Host::new(&HostSettings { root: self.0.path().into(), proc: self.0.path().join("proc"), ..HostSettings::default() })
        }
    }

    #[test]
    fn an_absolute_link_of_the_host_stays_inside_the_host() {
        let fake = FakeHost::new().with("data/etc/name", "inside");
        symlink("/data/etc", fake.0.path().join("etc")).unwrap();
        symlink("/../../../data", fake.0.path().join("up")).unwrap();
        assert_eq!(fake.host().read(Path::new("/etc/name")).unwrap(), b"inside");
        assert_eq!(fake.host().read(Path::new("/up/etc/name")).unwrap(), b"inside");
    }

    #[test]
    fn a_missing_directory_is_made_with_its_parents() {
        let fake = FakeHost::new();
        let made = fake.host().open_or_make_directory(Path::new("/run/nodeward/deep")).unwrap();
        assert_eq!(rustix::fs::fstat(&made).unwrap().st_mode & 0o7777, 0o700);
        assert!(fake.0.path().join("run/nodeward/deep").is_dir());
        fake.host().open_or_make_directory(Path::new("/run/nodeward/deep")).unwrap();
    }

    #[test]
    fn a_file_that_never_ends_is_refused() {
        let fake = FakeHost::new().with("etc/fstab", &"#".repeat(2 << 20));
        assert_eq!(fake.host().read(Path::new("/etc/fstab")).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
    }

    #[test]
    fn a_namespace_is_nested_unless_pid_2_is_a_kernel_thread() {
        let stat = |name: &str, flags: u64| format!("2 ({name}) S 0 0 0 0 -1 {flags} 0 0 0 0\n");
        assert!(!FakeHost::new().with("proc/2/stat", &stat("kthreadd", 0x0020_8040)).host().is_nested());
        assert!(FakeHost::new().with("proc/2/stat", &stat("a) S 0 0 0 0 -1 2129984 (kthreadd", 0x0040_0000)).host().is_nested());
        assert!(FakeHost::new().host().is_nested());
    }

    #[test]
    fn the_command_line_says_whether_the_root_was_to_be_read_only() {
        let says = |line: &str| FakeHost::new().with("proc/cmdline", line).host().is_root_read_only_by_command_line().unwrap();
        assert!(says("BOOT_IMAGE=/vmlinuz root=/dev/sda1 ro quiet\n"));
        assert!(says("rw ro\n"));
        assert!(!says("ro root=/dev/sda1 rw\n"));
        assert!(!says("root=/dev/sda1 rootflags=ro -- ro\n"));
    }

    #[test]
    fn this_machine_is_a_host() {
        let host = Host::new(&HostSettings::default());
        assert_eq!(host.boot_id().unwrap().len(), 36);
        assert!(host.kernel_release().unwrap().contains('.'));
        assert!(host.read(Path::new("/etc/passwd")).unwrap().starts_with(b"root:"));
    }
}
