//! `nodeward-agent config check`.

use std::{path::Path, process::ExitCode};

use crate::config::Settings;

/// Says whether a configuration can be used.
pub(super) fn check(file: &Path) -> anyhow::Result<ExitCode> {
    Settings::read(file)?;
    super::say(&format!("{}: ok\n", file.display()))?;
    Ok(ExitCode::SUCCESS)
}
