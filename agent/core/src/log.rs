//! Kernel log records: taken apart and recognised. Every text in here comes from outside and may hold any byte.

mod glance;
mod record;
mod rule;

pub use glance::could_matter;
pub use record::{LogRecord, MalformedRecord};
pub use rule::{Recognised, recognise};
