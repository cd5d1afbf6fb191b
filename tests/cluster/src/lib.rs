//! What the tests of the cluster and whole tiers share: a real API server with its etcd, and a node of it.

pub mod authority;
pub mod caller;
pub mod cluster;
pub mod deployed;
pub mod disk;
pub mod exporting;
pub mod node;

use std::path::PathBuf;

use anyhow::{Context, Result};
// Processes that end with their test, and waiting with a deadline, are the same in every tier.
pub use tests_kernel::{process as server, wait};

/// What `cargo xtask test` made and says by this variable.
///
/// # Errors
/// If it did not.
pub fn made(variable: &str) -> Result<PathBuf> {
    std::env::var_os(variable).map(PathBuf::from).with_context(|| format!("{variable} is not set: run these tests by `cargo xtask test`"))
}
