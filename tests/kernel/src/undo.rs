//! What a test changed on this machine is put back when it ends, also when it panics, and also when it is killed.

use std::{
    ffi::OsStr,
    process::{Child, Command, Stdio},
};

use anyhow::{Context, Result};

/// Waits for its standard input to end, which it does with the test, and then tries until it works: what stands in the way (a process that has
/// just been killed, a filesystem that is still busy) goes away by itself.
const KEEPER: &str = "cat > /dev/null; for try in $(seq 100); do sh -c \"$0\" \"$@\" && exit; sleep 0.1; done; exit 1";

/// Puts something back when it is dropped.
#[derive(Debug)]
pub struct Undo {
    what: String,
    keeper: Child,
}

impl Undo {
    /// Promises to run a shell script, with these arguments as `$0`, `$1`, ... It must succeed when there is nothing to do any more.
    ///
    /// # Errors
    /// If the process that keeps the promise cannot be started. Then nothing may be changed.
    pub fn by<T: AsRef<OsStr>>(script: &str, arguments: &[T]) -> Result<Self> {
        // In a session of its own, so that what ends the test's processes all together does not end this one.
        let mut keeper = Command::new("setsid");
        keeper.args(["sh", "-c", KEEPER, script]).args(arguments);
        keeper.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Self { what: script.into(), keeper: keeper.spawn().context("cannot start setsid sh")? })
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        let ended = self.keeper.wait();
        // To panic here while a test already panics would hide why.
        if !ended.is_ok_and(|status| status.success()) && !std::thread::panicking() {
            panic!("could not be put back: {}", self.what);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_was_promised_is_done_at_the_end_and_not_before() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a file");
        let undo = Undo::by("echo done > \"$0\"", &[&file]).unwrap();
        assert!(!file.exists());
        drop(undo);
        assert_eq!(fs::read_to_string(&file).unwrap(), "done\n");
    }

    #[test]
    fn what_does_not_work_at_once_is_tried_again() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("tries");
        drop(Undo::by("echo >> \"$0\"; test $(wc -l < \"$0\") -ge 3", &[&file]).unwrap());
        assert_eq!(fs::read_to_string(&file).unwrap(), "\n\n\n");
    }
}
