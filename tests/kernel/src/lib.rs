//! What the tests of the kernel tier share: faults of this machine's own kernel that are put back whatever happens, and an agent that sees them.

pub mod agent;
pub mod cgroup;
pub mod disk;
pub mod filesystem;
pub mod frozen;
pub mod kernel_log;
pub mod metrics;
pub mod process;
pub mod sysctl;
pub mod undo;
pub mod wait;
