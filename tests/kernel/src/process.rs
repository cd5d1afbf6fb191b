//! Processes that live as long as the test that started them.

use std::{
    ffi::OsStr,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};

/// Lines of its log that are shown when a server did not do what it should.
const LAST_LINES: usize = 30;

/// A process that is killed when this is dropped, and by the kernel if the test itself is killed.
#[derive(Debug)]
pub struct Server {
    child: Child,
    log: PathBuf,
}

impl Server {
    /// Starts a program; what it says goes to this file.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(log: &Path, program: impl AsRef<OsStr>, set_up: impl FnOnce(&mut Command)) -> Result<Self> {
        let program = program.as_ref();
        let file = File::options().create(true).append(true).open(log).with_context(|| format!("cannot open {}", log.display()))?;
        // setpriv asks for the signal in the child, where code of ours would have to be unsafe. The kernel sends it when the thread that
        // started the process ends: that is the test's own.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(program);
        set_up(&mut command);
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let child = command.spawn().with_context(|| format!("cannot start {}", program.display()))?;
        Ok(Self { child, log: log.to_owned() })
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal.
    ///
    /// # Errors
    /// If it has ended.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::NotFound)?;
        Ok(kill_process(pid, signal)?)
    }

    /// Kills it and waits until it is gone.
    pub fn kill(&mut self) {
        // Both fail only if it is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// How it ended, if it has.
    ///
    /// # Errors
    /// Those of `waitpid`.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// All that it has said.
    #[must_use]
    pub fn said(&self) -> String {
        fs::read(&self.log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    /// The end of what it said, for an error.
    #[must_use]
    pub fn last_words(&self) -> String {
        let said = self.said();
        let lines: Vec<&str> = said.lines().collect();
        lines[lines.len().saturating_sub(LAST_LINES)..].join("\n")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Runs a program and gives what it printed.
///
/// # Errors
/// If it fails, with what it said.
pub fn output(command: &mut Command) -> Result<String> {
    let name = format!("{command:?}");
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot start {name}"))?;
    anyhow::ensure!(output.status.success(), "{name}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_does_not_outlive_its_owner() {
        let dir = tempfile::tempdir().unwrap();
        let server = Server::start(&dir.path().join("log"), "cat", |command| {
            command.arg("/dev/kmsg");
        });
        let server = server.unwrap();
        let proc = PathBuf::from(format!("/proc/{}", server.pid()));
        assert!(proc.exists());
        drop(server);
        assert!(!proc.exists());
    }

    #[test]
    fn a_program_that_fails_is_named_with_what_it_said() {
        let error = output(Command::new("sh").args(["-c", "echo no >&2; exit 4"])).unwrap_err().to_string();
        assert!(error.contains("exit 4") && error.contains("exit status: 4") && error.ends_with("no\n"), "{error}");
    }
}
