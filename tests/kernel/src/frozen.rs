//! A filesystem that is frozen, and the tasks that hang on it.

use std::{
    fs,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, ensure};

use crate::{cgroup::Cgroup, filesystem::Filesystem, process::output, wait};

/// How long a task may take to begin to hang.
const START: Duration = Duration::from_secs(10);

/// A frozen filesystem. It is thawed when this is dropped, and its tasks have ended.
#[derive(Debug)]
pub struct Frozen<'a> {
    filesystem: &'a Filesystem,
    tasks: Vec<Child>,
}

impl<'a> Frozen<'a> {
    /// Freezes: whatever writes there from now on sleeps, and no signal wakes it.
    ///
    /// # Errors
    /// If it cannot be frozen.
    pub fn new(filesystem: &'a Filesystem) -> Result<Self> {
        // If the test is killed the filesystem's own undoing thaws it.
        output(Command::new("fsfreeze").arg("--freeze").arg(filesystem.mount_point()))?;
        Ok(Self { filesystem, tasks: Vec::new() })
    }

    /// Starts a task of this group and waits until it hangs. Gives its pid.
    ///
    /// # Errors
    /// If it does not.
    pub fn hang(&mut self, cgroup: &Cgroup) -> Result<u32> {
        let file: PathBuf = self.filesystem.mount_point().join(format!("file-{}", self.tasks.len()));
        let mut command = Command::new("sh");
        command.args(["-c", "echo $$ > \"$0\" && exec touch \"$1\""]).arg(cgroup.entrance()).arg(file);
        let task = command.stdin(Stdio::null()).spawn().context("cannot start sh")?;
        let pid = task.id();
        self.tasks.push(task);
        wait::until("a task to hang", START, || {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
            ensure!(stat.contains("(touch) D "), "it is {stat}");
            Ok(())
        })?;
        Ok(pid)
    }

    /// Lets everything go on.
    ///
    /// # Errors
    /// If it cannot be thawed, or a task failed then.
    pub fn thaw(mut self) -> Result<()> {
        self.let_go()?;
        for mut task in self.tasks.drain(..) {
            let status = task.wait()?;
            ensure!(status.success(), "a task that hung ended with {status}");
        }
        Ok(())
    }

    fn let_go(&self) -> Result<()> {
        output(Command::new("fsfreeze").arg("--unfreeze").arg(self.filesystem.mount_point())).map(drop)
    }
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        // Fails if it has been thawed. A task that hangs on all the same must not be waited for.
        if self.let_go().is_ok() {
            for task in &mut self.tasks {
                let _ = task.wait();
            }
        }
    }
}
