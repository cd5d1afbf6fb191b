//! nodeward's decisions about machines, pure: what was seen and what is persisted in, effects with preconditions and holds out.
//!
//! The shell makes a [`view::View`], calls [`step`] for a pool (or [`plan`] for all), carries the effects out in order, stops at the first
//! that fails, looks and steps again. What came of a power call, and what providers said, is kept in [`process::Process`] and so comes
//! back as an observation. Everything else that must survive is in the status types of [`state`], which are the custom resources'.

/// Whether this deliberate fault is switched on: never, in what ships.
macro_rules! mutant {
    ($name:ident) => {{
        #[cfg(feature = "mutants")]
        {
            $crate::mutant::is($crate::mutant::Mutant::$name)
        }
        #[cfg(not(feature = "mutants"))]
        {
            false
        }
    }};
}

mod assess;
pub mod effect;
mod episode;
mod etcd;
mod family;
mod fleet;
mod gate;
pub mod hold;
#[cfg(feature = "mutants")]
pub mod mutant;
mod pause;
mod permit;
pub mod policy;
mod power;
pub mod process;
pub mod provider;
pub mod state;
mod step;
pub mod time;
pub mod view;

pub use assess::REMEDIATE;
pub use episode::{MESSAGE, RETRY};
pub use fleet::{Summary, Surroundings};
pub use gate::RESUME;
pub use pause::{PAUSED, SKIP_REMEDIATION};
pub use step::{plan, step, summarize};
