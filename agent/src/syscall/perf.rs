//! Attaches a loaded eBPF program to a tracepoint by a perf event. The library's own way needs tracefs mounted where it looks for it, and
//! nothing of ours may depend on, or leave, a mount.

use std::{
    io,
    os::fd::{AsFd, AsRawFd as _, FromRawFd as _, OwnedFd},
};

/// Size of the first version of `struct perf_event_attr` (`PERF_ATTR_SIZE_VER0` in `include/uapi/linux/perf_event.h`): all that a tracepoint
/// needs, and known to every kernel.
const ATTR_SIZE_VER0: usize = 64;

/// Attaches a program to the tracepoint of this id, for all CPUs and tasks. It stays attached for as long as the descriptor is open, and no
/// longer: the kernel closes it when the agent dies, however it dies.
///
/// # Errors
/// What `perf_event_open(2)` or one of the two `ioctl(2)`s says: `EACCES` without `CAP_PERFMON`, `EEXIST`, ...
pub(crate) fn attach(tracepoint_id: u64, program: impl AsFd) -> io::Result<OwnedFd> {
    let event = open(tracepoint_id)?;
    let program = libc::c_ulong::try_from(program.as_fd().as_raw_fd()).map_err(io::Error::other)?;
    control(&event, libc::c_ulong::from(PERF_EVENT_IOC_SET_BPF), program)?;
    control(&event, libc::c_ulong::from(PERF_EVENT_IOC_ENABLE), 0)?;
    Ok(event)
}

/// `PERF_EVENT_IOC_SET_BPF` and `PERF_EVENT_IOC_ENABLE` of `include/uapi/linux/perf_event.h`.
const PERF_EVENT_IOC_SET_BPF: u32 = 0x4004_2408;
const PERF_EVENT_IOC_ENABLE: u32 = 0x2400;

/// `PERF_TYPE_TRACEPOINT` and `PERF_FLAG_FD_CLOEXEC`.
const PERF_TYPE_TRACEPOINT: u32 = 2;
const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 8;

/// A perf event on a tracepoint. Its program runs on every CPU, whichever the event is opened on: the kernel hangs it on the tracepoint itself.
fn open(tracepoint_id: u64) -> io::Result<OwnedFd> {
    // type, size, config, sample_period, then zeros.
    let mut attr = [0u8; ATTR_SIZE_VER0];
    let mut put = |at: usize, bytes: &[u8]| {
        if let Some(field) = attr.get_mut(at..at + bytes.len()) {
            field.copy_from_slice(bytes);
        }
    };
    put(0, &PERF_TYPE_TRACEPOINT.to_ne_bytes());
    put(4, &u32::try_from(ATTR_SIZE_VER0).unwrap_or_default().to_ne_bytes());
    put(8, &tracepoint_id.to_ne_bytes());
    put(16, &1u64.to_ne_bytes());
    let (any_task, first_cpu, no_group): (libc::c_long, libc::c_long, libc::c_long) = (-1, 0, -1);
    // SAFETY: the pointer leads to as many bytes as the size in the structure says, for the length of the call.
    let fd = unsafe { libc::syscall(libc::SYS_perf_event_open, attr.as_ptr(), any_task, first_cpu, no_group, PERF_FLAG_FD_CLOEXEC) };
    let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0).ok_or_else(io::Error::last_os_error)?;
    // SAFETY: the call has just made this descriptor, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn control(event: &OwnedFd, request: libc::c_ulong, argument: libc::c_ulong) -> io::Result<()> {
    // SAFETY: both requests take a number, not a pointer.
    let result = unsafe { libc::ioctl(event.as_raw_fd(), request, argument) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
