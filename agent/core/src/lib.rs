//! nodeward's decisions on a node, pure: observations and the time go in, [`Effect`]s come out.
//!
//! Nothing here reads a clock, a file, an environment variable or a random number, and nothing can fail once built. The shell (the
//! `nodeward-agent` package) watches the kernel, carries the effects out and brings their outcomes back as observations.

mod budget;
pub mod condition;
pub mod config;
pub mod core;
pub mod detection;
pub mod device;
pub mod effect;
mod incident;
pub mod log;
pub mod memory;
mod monitor;
pub mod mount;
pub mod observation;
mod report;
pub mod task;
pub mod time;
mod tracker;
mod world;

pub use self::core::Core;
pub use condition::{Condition, ConditionType, Status};
pub use config::Config;
pub use detection::Detection;
pub use device::{Device, DeviceNumber};
pub use effect::{Effect, Event, Look, Severity, Stall};
pub use memory::Memory;
pub use observation::{Fact, Observation, Signal, Source, SourceState, Subject};
pub use time::BootTime;
