//! Filesystems that give up: `ext4:ext4_error`, `ext4:ext4_shutdown`, `xfs:xfs_force_shutdown`.

use agent_ebpf::{FilesystemRecord, TEXT_LEN, kind, layout};
use aya_ebpf::{macros::tracepoint, programs::TracePointContext};

use crate::{output, read};

#[unsafe(no_mangle)]
static EXT4_ERROR_LAYOUT: [u32; layout::EXT4_ERROR] = [0; layout::EXT4_ERROR];

#[unsafe(no_mangle)]
static EXT4_SHUTDOWN_LAYOUT: [u32; layout::EXT4_SHUTDOWN] = [0; layout::EXT4_SHUTDOWN];

#[unsafe(no_mangle)]
static XFS_SHUTDOWN_LAYOUT: [u32; layout::XFS_SHUTDOWN] = [0; layout::XFS_SHUTDOWN];

#[tracepoint]
fn ext4_error(ctx: TracePointContext) -> u32 {
    let [device, line, function, function_kind] = read::layout(&EXT4_ERROR_LAYOUT);
    report(&ctx, kind::EXT4_ERROR, device, line, read::text(&ctx, function, function_kind))
}

#[tracepoint]
fn ext4_shutdown(ctx: TracePointContext) -> u32 {
    let [device, flags] = read::layout(&EXT4_SHUTDOWN_LAYOUT);
    report(&ctx, kind::EXT4_SHUTDOWN, device, flags, [0; TEXT_LEN])
}

#[tracepoint]
fn xfs_force_shutdown(ctx: TracePointContext) -> u32 {
    let [device, flags, file, file_kind] = read::layout(&XFS_SHUTDOWN_LAYOUT);
    report(&ctx, kind::XFS_SHUTDOWN, device, flags, read::text(&ctx, file, file_kind))
}

fn report(ctx: &TracePointContext, kind: u32, device: u32, number: u32, place: [u8; TEXT_LEN]) -> u32 {
    if let Some(header) = output::header(kind, read::number(ctx, device)) {
        let number = u64::from(read::number::<u32>(ctx, number));
        output::submit(FilesystemRecord { header, number, place });
    }
    0
}
