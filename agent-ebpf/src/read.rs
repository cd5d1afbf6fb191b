//! Reads fields of a tracepoint's record at offsets that the agent found in the running kernel's format files.

use agent_ebpf::string;
use aya_ebpf::{EbpfContext as _, helpers::bpf_probe_read_kernel, helpers::bpf_probe_read_kernel_str_bytes, programs::TracePointContext};

/// A number at this offset; 0 if it cannot be read.
pub(crate) fn number<T: Copy + Default>(ctx: &TracePointContext, offset: u32) -> T {
    // SAFETY: the helper checks the address and reports a fault.
    unsafe { bpf_probe_read_kernel(at::<T>(ctx, offset)) }.unwrap_or_default()
}

/// A string described by an offset and its kind; empty if it is not there or cannot be read.
pub(crate) fn text<const N: usize>(ctx: &TracePointContext, offset: u32, kind: u32) -> [u8; N] {
    let mut text = [0; N];
    let from = match kind {
        string::INLINE => at(ctx, offset),
        string::DATA_LOC => at(ctx, number::<u32>(ctx, offset) & 0xffff),
        string::POINTER => number::<u64>(ctx, offset) as *const u8,
        _ => return text,
    };
    // SAFETY: the helper checks the address, and writes no more than the slice holds.
    let _ = unsafe { bpf_probe_read_kernel_str_bytes(from, &mut text) };
    text
}

fn at<T>(ctx: &TracePointContext, offset: u32) -> *const T {
    (ctx.as_ptr() as *const u8).wrapping_add(offset as usize) as *const T
}

/// A layout, as the agent set it. Volatile, since the compiler sees only the zeros it was built with.
pub(crate) fn layout<const N: usize>(global: &'static [u32; N]) -> [u32; N] {
    // SAFETY: a reference to a static is readable.
    unsafe { core::ptr::read_volatile(global) }
}
