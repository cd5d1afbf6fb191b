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

pub mod effect;
pub mod hold;
#[cfg(feature = "mutants")]
pub mod mutant;
pub mod policy;
pub mod process;
pub mod provider;
pub mod state;
pub mod time;
pub mod view;
