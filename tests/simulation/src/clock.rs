//! The only clock: how long a campaign took, for the steps per second that are printed.
#![allow(clippy::disallowed_methods)] // this file reads the clock

/// Started now.
pub fn start() -> impl Fn() -> std::time::Duration {
    let began = std::time::Instant::now();
    move || began.elapsed()
}
