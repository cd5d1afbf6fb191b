//! The one sysctl that the agent may change, and only if the configuration says so: how often the kernel looks for hung tasks.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

/// `kernel.hung_task_check_interval_secs` (since 4.19): 0, the default, means the hung task timeout itself, so that a hang is found after
/// one to two timeouts. A shorter interval finds it sooner and leaves the threshold alone.
const SYSCTL: &str = "sys/kernel/hung_task_check_interval_secs";

/// Keeps the sysctl at the configured value, and puts the host's own value back when dropped. That value is also written to the state
/// directory, so that the next run puts it back after a kill.
#[derive(Debug)]
pub struct HungTaskInterval {
    sysctl: PathBuf,
    saved: PathBuf,
}

impl HungTaskInterval {
    /// Puts back what a killed run left behind, then sets the interval if one is configured.
    ///
    /// # Errors
    /// If the sysctl or the state directory cannot be read or written. Nothing has been changed then.
    pub fn apply(proc: &Path, state_directory: &Path, interval: Option<Duration>) -> io::Result<Option<Self>> {
        let this = Self { sysctl: proc.join(SYSCTL), saved: state_directory.join("hung_task_check_interval_secs") };
        this.put_back()?;
        let Some(interval) = interval else { return Ok(None) };
        let before = fs::read_to_string(&this.sysctl)?;
        fs::create_dir_all(state_directory)?;
        fs::write(&this.saved, before)?;
        fs::write(&this.sysctl, interval.as_secs().to_string())?;
        Ok(Some(this))
    }

    fn put_back(&self) -> io::Result<()> {
        match fs::read_to_string(&self.saved) {
            Ok(before) => {
                fs::write(&self.sysctl, before.trim())?;
                fs::remove_file(&self.saved)
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(e) => Err(e),
        }
    }
}

impl Drop for HungTaskInterval {
    fn drop(&mut self) {
        if let Err(e) = self.put_back() {
            log::error!("cannot put {} back: {e}", self.sysctl.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct FakeProc(tempfile::TempDir);

    impl FakeProc {
        fn new(value: &str) -> Self {
            let this = Self(tempfile::tempdir().unwrap());
            fs::create_dir_all(this.proc().join("sys/kernel")).unwrap();
            fs::write(this.proc().join(SYSCTL), value).unwrap();
            this
        }

        fn proc(&self) -> PathBuf {
            self.0.path().join("proc")
        }

        fn state(&self) -> PathBuf {
            self.0.path().join("state")
        }

        fn value(&self) -> String {
            fs::read_to_string(self.proc().join(SYSCTL)).unwrap().trim().into()
        }
    }

    const TEN: Option<Duration> = Some(Duration::from_secs(10));

    #[test]
    fn nothing_is_changed_unless_configured() {
        let host = FakeProc::new("0\n");
        assert!(HungTaskInterval::apply(&host.proc(), &host.state(), None).unwrap().is_none());
        assert_eq!(host.value(), "0");
        assert!(!host.state().exists());
    }

    #[test]
    fn the_hosts_own_value_comes_back_at_the_end() {
        let host = FakeProc::new("30\n");
        let guard = HungTaskInterval::apply(&host.proc(), &host.state(), TEN).unwrap();
        assert_eq!(host.value(), "10");
        drop(guard);
        assert_eq!(host.value(), "30");
    }

    #[test]
    fn the_hosts_own_value_comes_back_after_a_kill() {
        let host = FakeProc::new("0\n");
        std::mem::forget(HungTaskInterval::apply(&host.proc(), &host.state(), TEN).unwrap());
        assert_eq!(host.value(), "10");
        let again = HungTaskInterval::apply(&host.proc(), &host.state(), TEN).unwrap();
        assert_eq!(host.value(), "10");
        drop(again);
        assert_eq!(host.value(), "0");
    }

    #[test]
    fn a_kernel_without_the_sysctl_is_an_error_and_leaves_nothing_behind() {
        let host = FakeProc::new("0");
        fs::remove_file(host.proc().join(SYSCTL)).unwrap();
        assert!(HungTaskInterval::apply(&host.proc(), &host.state(), TEN).is_err());
        assert!(!host.state().exists());
    }
}
