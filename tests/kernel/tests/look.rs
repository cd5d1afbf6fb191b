//! Looks at filesystems and tasks of this machine's own kernel that are really broken or really hang, without the agent around them.
#![expect(clippy::unwrap_used, reason = "all of this is tests")]

use std::{
    fs,
    io::Write as _,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use agent_core::{
    Fact, Look, Observation,
    observation::{FilesystemLook, Probe, Refusal, TaskLook, TaskSeen},
    task::{Task, WaitsFor},
};
use nodeward_agent::{
    clock::Clock,
    config::Settings,
    host::{Host, mountinfo},
    look,
    metrics::Metrics,
    source::Context,
};
use tests_kernel::{
    filesystem::{Filesystem, Kind},
    process::output,
    undo::Undo,
    wait,
};
use tokio::{runtime, sync::mpsc, time};

/// What makes looks, and where their answers come out.
struct Looks {
    runtime: runtime::Runtime,
    requests: mpsc::Sender<Look>,
    answers: mpsc::Receiver<Observation>,
}

impl Looks {
    fn new() -> Self {
        let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (out, answers) = mpsc::channel(16);
        let settings = Settings::default();
        let host = Host::new(&settings.host).into();
        let context = Context { host, clock: Clock, metrics: Metrics::new().unwrap(), settings: settings.into(), out };
        let (requests, _task) = runtime.block_on(async { look::start(&context) });
        Self { runtime, requests, answers }
    }

    fn ask(&self, look: Look) {
        self.runtime.block_on(self.requests.send(look)).unwrap();
    }

    fn answer(&mut self, within: Duration) -> Fact {
        let answer = async { time::timeout(within, self.answers.recv()).await };
        self.runtime.block_on(answer).expect("an answer in time").expect("looks are made").fact
    }

    fn outcome(&mut self, within: Duration) -> FilesystemLook {
        let fact = self.answer(within);
        let Fact::Filesystem(look) = fact else { panic!("{fact:?}") };
        look
    }

    fn probe(&mut self, look: &Look) -> Probe {
        self.ask(look.clone());
        self.outcome(SOON).outcome
    }

    fn task(&mut self, pid: u32) -> Task {
        self.ask(Look::Task { pid });
        let fact = self.answer(SOON);
        let Fact::Task(TaskLook { seen: TaskSeen::There(task), .. }) = fact else { panic!("{fact:?}") };
        *task
    }
}

/// A look that does not hang, on a busy machine.
const SOON: Duration = Duration::from_secs(4);

/// The agent's deadline is 5 s.
const LATE: Duration = Duration::from_secs(10);

fn mount_at(place: &Path) -> mountinfo::MountLine {
    let (lines, _) = mountinfo::parse(&fs::read("/proc/1/mountinfo").unwrap());
    let here = lines.into_iter().rfind(|line| Path::new(&line.mount.mount_point) == place);
    here.unwrap_or_else(|| panic!("nothing is mounted at {}", place.display()))
}

fn look_at(place: &Path) -> Look {
    Look::Filesystem { mount_point: place.to_str().unwrap().into(), mount_id: mount_at(place).mount.id }
}

/// What is in the root directory of a filesystem, but for what its maker put there.
fn left_behind(filesystem: &Filesystem) -> Vec<String> {
    let names = fs::read_dir(filesystem.mount_point()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name != "lost+found").collect()
}

/// In so many looks, one after the other, a task that hangs has not moved.
const STILL: usize = 5;

/// A program that works on a filesystem and hangs there. It ends when the filesystem is thawed.
fn hang(script: &str, place: &Path) -> Child {
    let task = Command::new("sh").args(["-c", script]).arg(place).stdin(Stdio::null()).spawn().unwrap();
    // A program that is being loaded waits for the disk too, now and then: only what has not run in between hangs.
    let mut before = (String::new(), 0);
    wait::until("a task to hang", Duration::from_secs(10), || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", task.id()))?;
        let status = fs::read_to_string(format!("/proc/{}/status", task.id()))?;
        let switches: String = status.lines().filter(|line| line.contains("ctxt_switches")).collect();
        before = if stat.contains(") D ") && before.0 == switches { (switches, before.1 + 1) } else { (switches, 0) };
        anyhow::ensure!(before.1 >= STILL, "it is {stat}");
        Ok(())
    })
    .unwrap();
    task
}

fn freeze(filesystem: &Filesystem) -> Undo {
    let undo = Undo::by("fsfreeze --unfreeze \"$0\" || true", &[filesystem.mount_point()]).unwrap();
    output(Command::new("fsfreeze").arg("--freeze").arg(filesystem.mount_point())).unwrap();
    undo
}

#[test]
fn an_ext4_error_is_refused_until_it_is_mended() {
    let mut looks = Looks::new();
    let filesystem = Filesystem::new(Kind::Ext4).unwrap();
    let look = look_at(filesystem.mount_point());
    assert_eq!(looks.probe(&look), Probe::Writable);
    assert_eq!(left_behind(&filesystem), [""; 0]);

    filesystem.break_ext4("nodeward test look").unwrap();
    let refused = looks.probe(&look);
    // EIO on 6.12.
    assert!(matches!(refused, Probe::Refused(Refusal::ReadOnly | Refusal::Io)), "{refused:?}");

    filesystem.unmount().unwrap();
    assert_eq!(looks.probe(&look), Probe::Gone);
    filesystem.mend().unwrap();
    filesystem.mount().unwrap();
    assert_eq!(looks.probe(&look_at(filesystem.mount_point())), Probe::Writable);
}

#[test]
fn a_shut_down_filesystem_is_refused() {
    let mut looks = Looks::new();
    for kind in [Kind::Xfs, Kind::Ext4] {
        let filesystem = Filesystem::new(kind).unwrap();
        let look = look_at(filesystem.mount_point());
        assert_eq!(looks.probe(&look), Probe::Writable);
        filesystem.shut_down().unwrap();
        assert_eq!(looks.probe(&look), Probe::Refused(Refusal::Io), "{kind:?}");
    }
}

#[test]
fn a_remount_is_refused_and_comes_back() {
    let mut looks = Looks::new();
    let filesystem = Filesystem::new(Kind::Ext4).unwrap();
    let look = look_at(filesystem.mount_point());
    filesystem.remount("ro").unwrap();
    assert_eq!(looks.probe(&look), Probe::Refused(Refusal::ReadOnly));
    filesystem.remount("rw").unwrap();
    assert_eq!(looks.probe(&look), Probe::Writable);
}

#[test]
fn a_full_filesystem_is_alive() {
    let mut looks = Looks::new();
    let filesystem = Filesystem::new(Kind::Ext4).unwrap();
    let full = output(Command::new("dd").args(["if=/dev/zero", "bs=1M"]).arg(format!("of={}/fill", filesystem.mount_point().display())));
    assert!(full.unwrap_err().to_string().contains("No space left"));
    assert_eq!(looks.probe(&look_at(filesystem.mount_point())), Probe::Writable);
    assert_eq!(left_behind(&filesystem), ["fill"]);
}

#[test]
fn a_mounted_file_is_looked_at_and_not_changed() {
    let mut looks = Looks::new();
    let filesystem = Filesystem::new(Kind::Ext4).unwrap();
    let (file, place) = (filesystem.mount_point().join("hostname"), tempfile::NamedTempFile::new().unwrap());
    fs::write(&file, "node1\n").unwrap();
    let unmount = Undo::by("! mountpoint -q \"$0\" || umount \"$0\"", &[place.path()]).unwrap();
    output(Command::new("mount").arg("--bind").args([file.as_path(), place.path()])).unwrap();
    let look = look_at(place.path());
    assert_eq!(looks.probe(&look), Probe::Writable);
    assert_eq!(fs::read(&file).unwrap(), b"node1\n");
    filesystem.shut_down().unwrap();
    assert_eq!(looks.probe(&look), Probe::Refused(Refusal::Io));
    drop(unmount);
}

#[test]
fn a_frozen_filesystem_is_blocked_and_then_answers() {
    let mut looks = Looks::new();
    let filesystem = Filesystem::new(Kind::Ext4).unwrap();
    let look = look_at(filesystem.mount_point());
    let frozen = freeze(&filesystem);
    looks.ask(look.clone());
    let blocked = looks.outcome(LATE);
    assert_eq!(blocked.outcome, Probe::Blocked);
    assert!(blocked.took >= Duration::from_secs(5), "{:?}", blocked.took);
    // Asked again it says so at once, and does not begin another probe.
    assert_eq!(looks.probe(&look), Probe::Blocked);
    drop(frozen);
    let answered = looks.outcome(LATE);
    assert_eq!(answered.outcome, Probe::Writable);
    assert!(answered.took > blocked.took);
    assert_eq!(left_behind(&filesystem), [""; 0]);
}

#[test]
fn a_task_that_hangs_on_a_filesystem_waits_for_it_whatever_it_calls() {
    let scripts = [
        ("a new file", "exec touch \"$0/new\""),
        ("a relative path", "cd \"$0\" && exec touch new"),
        ("a path with a link", "exec touch \"$0-link/new\""),
        ("an open file", "exec dd if=/dev/zero of=\"$0/open\" bs=4k count=1 conv=notrunc status=none"),
        ("a directory", "exec mkdir \"$0/directory\""),
        ("a removal", "exec rm \"$0/open\""),
        ("a rename", "exec mv \"$0/open\" \"$0/other\""),
        ("times", "exec touch \"$0/open\""),
    ];
    let mut looks = Looks::new();
    for kind in [Kind::Ext4, Kind::Xfs] {
        let filesystem = Filesystem::new(kind).unwrap();
        let place = filesystem.mount_point();
        fs::write(place.join("open"), "content").unwrap();
        let link = format!("{}-link", place.display());
        std::os::unix::fs::symlink(place, &link).unwrap();
        fs::read_dir(&link).unwrap();
        let expected = WaitsFor::Filesystem { device: mount_at(place).mount.device, mount_point: place.to_str().unwrap().into() };
        for (what, script) in scripts {
            let frozen = freeze(&filesystem);
            let mut hanging = hang(script, place);
            let task = looks.task(hanging.id());
            let stack = fs::read_to_string(format!("/proc/{}/stack", hanging.id())).unwrap();
            drop(frozen);
            assert!(hanging.wait().unwrap().success(), "{what}");
            assert_eq!(task.state, 'D');
            assert_eq!(task.waits_for, expected, "{kind:?}: {what}\n{stack}");
            fs::write(place.join("open"), "content").unwrap();
            let _ = fs::remove_file(place.join("new"));
            let _ = fs::remove_dir(place.join("directory"));
        }
    }
}

#[test]
fn a_task_in_a_container_waits_for_the_disk_below_its_overlay() {
    let mut looks = Looks::new();
    let filesystem = Filesystem::new(Kind::Ext4).unwrap();
    let place = filesystem.mount_point();
    for directory in ["lower", "upper", "work", "merged"] {
        fs::create_dir(place.join(directory)).unwrap();
    }
    // In a mount namespace of its own: PID 1 does not see the overlay.
    let enter = "mount -t overlay overlay -o lowerdir=$0/lower,upperdir=$0/upper,workdir=$0/work $0/merged; \
                 echo ready > $0/ready; read go; exec touch $0/merged/new";
    let mut command = Command::new("unshare");
    let mut child = command.args(["--mount", "sh", "-ec", enter]).arg(place).stdin(Stdio::piped()).spawn().unwrap();
    wait::until("the overlay", Duration::from_secs(10), || fs::metadata(place.join("ready"))).unwrap();
    let frozen = freeze(&filesystem);
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    let hanging = wait::until("a task to hang", Duration::from_secs(10), || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", child.id()))?;
        anyhow::ensure!(stat.contains("(touch) D "), "it is {stat}");
        Ok(child.id())
    });
    let task = hanging.as_ref().map(|pid| looks.task(*pid));
    drop(frozen);
    child.wait().unwrap();
    let expected = WaitsFor::Filesystem { device: mount_at(place).mount.device, mount_point: place.to_str().unwrap().into() };
    assert_eq!(task.unwrap().waits_for, expected);
}
