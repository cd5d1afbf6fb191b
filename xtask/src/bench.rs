//! `cargo xtask bench`.

use anyhow::{Result, bail};

/// Measures.
pub(crate) fn run() -> Result<()> {
    bail!("nothing to measure yet")
}
