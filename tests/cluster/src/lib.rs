//! What the tests of the cluster and whole tiers share: a real API server with its etcd, and a node of it.

pub mod authority;
pub mod cluster;
pub mod disk;
pub mod node;
pub mod server;
pub mod wait;

use std::path::PathBuf;

use anyhow::{Context, Result};

/// What `cargo xtask test` made and says by this variable.
///
/// # Errors
/// If it did not.
pub fn made(variable: &str) -> Result<PathBuf> {
    std::env::var_os(variable).map(PathBuf::from).with_context(|| format!("{variable} is not set: run these tests by `cargo xtask test`"))
}
