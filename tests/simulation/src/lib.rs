//! A world for the controller's decisions to be tried in: seeded, deterministic, in virtual time, without threads, files or clocks.
//!
//! [`run::run`] plays one seed: a world is made ([`setup`]), a script of faults and people's actions is drawn ([`script`]), and events happen
//! one after the other ([`world`]) to machines ([`body`]), owners ([`owner`]), the provider ([`infrastructure`]) and two controllers
//! ([`controller`], [`effects`]) that ask `controller_core::step` and do what it says. After each event every invariant is checked ([`check`]).

// A checker and a fault look at the one thing that they are about.
#![allow(clippy::wildcard_enum_match_arm)]

pub mod body;
pub mod check;
pub mod clock;
pub mod controller;
pub mod disturb;
pub mod effects;
pub mod infrastructure;
#[cfg(feature = "mutants")]
pub mod mutants;
pub mod owner;
pub mod run;
pub mod script;
pub mod setup;
pub mod shrink;
pub mod state;
pub mod view;
pub mod world;

/// So many seconds.
#[must_use]
pub const fn seconds(s: u64) -> std::time::Duration {
    std::time::Duration::from_secs(s)
}
