//! The agent's shell around [`agent_core`]: sources that watch the kernel, looks that confirm, exporters that tell, and the loop between.

pub mod cli;
pub mod clock;
pub mod config;
pub mod export;
pub mod host;
pub mod jitter;
pub mod look;
pub mod metrics;
pub mod pipeline;
pub mod replay;
pub mod run;
pub mod source;
pub mod state;
pub mod syscall;
pub mod tune;
