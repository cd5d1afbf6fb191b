//! A setting of the kernel, changed for as long as a test needs it.

use std::{fs, path::PathBuf};

use anyhow::{Context, Result};

use crate::undo::Undo;

/// A changed setting. It has its old value again when this is dropped.
#[derive(Debug)]
pub struct Sysctl {
    _undo: Undo,
}

impl Sysctl {
    /// Sets `kernel.hung_task_warnings` and the like.
    ///
    /// # Errors
    /// If there is no such setting, or the kernel refuses the value.
    pub fn set(name: &str, value: &str) -> Result<Self> {
        let file = PathBuf::from("/proc/sys").join(name.replace('.', "/"));
        let before = fs::read_to_string(&file).with_context(|| format!("cannot read {name}"))?;
        let undo = Undo::by("echo \"$1\" > \"$0\"", &[file.as_os_str(), before.trim().as_ref()])?;
        // Some settings are not taken without the end of the line.
        fs::write(&file, format!("{value}\n")).with_context(|| format!("cannot set {name} to {value}"))?;
        Ok(Self { _undo: undo })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_has_its_old_value_again() {
        let now = || fs::read_to_string("/proc/sys/kernel/hung_task_warnings").unwrap().trim().to_owned();
        let before = now();
        let changed = Sysctl::set("kernel.hung_task_warnings", "7777").unwrap();
        assert_eq!(now(), "7777");
        drop(changed);
        assert_eq!(now(), before);
    }
}
