//! The one module outside eBPF that needs `unsafe`: calls whose safe form the libraries lack.
#![expect(unsafe_code, reason = "this is the one module for it")]

pub(crate) mod perf;

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use tokio::io::{
    Interest,
    unix::{AsyncFd, AsyncFdReadyGuard},
};

/// A descriptor whose readiness can be awaited. Nothing hands out the `OwnedFd` itself, so it cannot be exchanged while it is registered.
#[derive(Debug)]
pub struct Watched {
    fd: AsyncFd<OwnedFd>,
    interest: Interest,
}

impl Watched {
    /// Registers a descriptor with the runtime's epoll, edge-triggered.
    ///
    /// # Errors
    /// If the kernel cannot poll it (a regular file), or outside a runtime's reach.
    pub fn new(fd: OwnedFd, interest: Interest) -> io::Result<Self> {
        // SAFETY: an `OwnedFd` is open until it is dropped and always gives the same descriptor; it is owned by the `AsyncFd` and never
        // handed out, so both hold for as long as it is registered.
        let fd = unsafe { AsyncFd::register_with_interest(fd, interest) }?;
        Ok(Self { fd, interest })
    }

    /// Waits until it is ready. Who has used the readiness up must say so to the guard.
    ///
    /// # Errors
    /// If the runtime shuts down.
    pub async fn ready(&self) -> io::Result<AsyncFdReadyGuard<'_, OwnedFd>> {
        self.fd.ready(self.interest).await
    }
}

impl AsFd for Watched {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Write as _, os::unix::net::UnixStream, time::Duration};

    use super::*;

    #[tokio::test]
    async fn who_waits_is_woken_when_something_comes() {
        let (reader, mut writer) = UnixStream::pair().unwrap();
        let watched = Watched::new(reader.into(), Interest::READABLE).unwrap();
        writer.write_all(b"x").unwrap();
        let ready = tokio::time::timeout(Duration::from_secs(10), watched.ready()).await;
        assert!(ready.expect("in time").unwrap().ready().is_readable());
    }

    #[tokio::test]
    async fn a_regular_file_cannot_be_waited_for() {
        assert!(Watched::new(tempfile::tempfile().unwrap().into(), Interest::READABLE).is_err());
    }
}
