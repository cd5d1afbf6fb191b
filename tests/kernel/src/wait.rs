//! Waiting for what comes, with a deadline.

use std::{
    fmt::Debug,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use rustix::{
    event::{Timespec, poll},
    io::Errno,
};

/// How often is looked.
const INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// Looks until there is an answer, and gives it. The last reason why there was none is in the error.
///
/// # Errors
/// If there is none within the time.
pub fn until<T, E: Debug>(what: &str, within: Duration, mut look: impl FnMut() -> Result<T, E>) -> Result<T> {
    let deadline = now() + within;
    loop {
        match look() {
            Ok(answer) => return Ok(answer),
            Err(why) if now() >= deadline => bail!("waited {within:?} for {what}: {why:?}"),
            Err(_) => pause(),
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a deadline needs a clock")]
fn now() -> Instant {
    Instant::now()
}

fn pause() {
    match poll(&mut [], Some(&INTERVAL)) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(e) => unreachable!("poll of nothing: {e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_is_given_as_soon_as_it_is_there_and_the_last_reason_if_it_never_is() {
        let mut tries = 0;
        let third = until("the third try", Duration::from_secs(60), || {
            tries += 1;
            if tries == 3 { Ok("here") } else { Err(tries) }
        });
        assert_eq!(third.unwrap(), "here");
        let never = until("nothing", Duration::ZERO, || Err::<(), _>("empty"));
        assert_eq!(never.unwrap_err().to_string(), "waited 0ns for nothing: \"empty\"");
    }
}
