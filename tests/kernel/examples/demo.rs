//! `cargo xtask demo`: a real fault on a throw-away filesystem, what the agent says about it, and the mend. What the README shows is its output.
#![allow(clippy::print_stdout)] // a command for people at a terminal

use std::{
    env, fs,
    io::{BufRead as _, BufReader},
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, sync_channel},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use tests_kernel::filesystem::{Filesystem, Kind};

/// The machine may be busy.
const PATIENCE: Duration = Duration::from_secs(30);

fn main() -> Result<()> {
    let agent = env::var_os("NODEWARD_AGENT").context("NODEWARD_AGENT is not set: run this by `cargo xtask demo`")?;
    let filesystem = Filesystem::new(Kind::Ext4)?;
    let directory = tempfile::tempdir()?;
    let configuration = directory.path().join("config.yaml");
    let (mount_point, state) = (filesystem.mount_point().display(), directory.path().join("state"));
    fs::write(
        &configuration,
        format!(
            "nodeFilesystems:\n  paths: ['{mount_point}']\nevents: {{lookback: 0s}}\nhttp: {{address: '127.0.0.1:0'}}\nhost: {{stateDirectory: '{}'}}\n",
            state.display()
        ),
    )?;
    let mut command = Command::new(agent);
    command.args(["run", "--no-cluster", "--config"]).arg(&configuration).env("NODEWARD_LOG", "error");

    say("nodeward-agent run --no-cluster --config config.yaml &");
    let mut running = Running::start(&mut command)?;
    running.until("StorageFault=False")?;
    say(&format!("echo demo > /sys/fs/ext4/{}/trigger_fs_error", filesystem.device()));
    filesystem.break_ext4("demo")?;
    running.until("is now: True")?;
    say("kill -9 %1; nodeward-agent run --no-cluster --config config.yaml &   # a restart changes nothing");
    drop(running);
    let mut running = Running::start(&mut command)?;
    running.until("StorageFault=False")?;
    say(&format!("umount /dev/{0}; e2fsck -fy /dev/{0}; mount /dev/{0} {mount_point}", filesystem.device()));
    filesystem.unmount()?;
    filesystem.mend()?;
    filesystem.mount()?;
    running.until("is now: False")
}

/// The command that a person would have typed.
fn say(command: &str) {
    println!("$ {command}");
}

/// An agent whose lines are shown as they come. It is killed when this is dropped.
struct Running {
    child: Child,
    lines: Receiver<String>,
}

impl Running {
    fn start(command: &mut Command) -> Result<Self> {
        let mut child = command.stdout(Stdio::piped()).spawn().context("cannot start the agent")?;
        let output = child.stdout.take().context("the agent has no output")?;
        let (to, lines) = sync_channel(100);
        thread::spawn(move || BufReader::new(output).lines().map_while(Result::ok).try_for_each(|line| to.send(line)));
        Ok(Self { child, lines })
    }

    /// Shows lines up to the one with these words.
    fn until(&mut self, words: &str) -> Result<()> {
        while let Ok(line) = self.lines.recv_timeout(PATIENCE) {
            println!("{line}");
            if line.contains(words) {
                return Ok(());
            }
        }
        bail!("the agent said nothing of {words:?} within {PATIENCE:?}")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::KILL);
        }
        let _ = self.child.wait();
    }
}
