//! Failed requests to block devices: `block:block_rq_error` (5.18).

use agent_ebpf::{BlockRecord, kind, layout};
use aya_ebpf::{macros::tracepoint, programs::TracePointContext};

use crate::{output, read};

#[unsafe(no_mangle)]
static BLOCK_ERROR_LAYOUT: [u32; layout::BLOCK_ERROR] = [0; layout::BLOCK_ERROR];

#[tracepoint]
fn block_rq_error(ctx: TracePointContext) -> u32 {
    let [device, sector, sectors, error, rwbs, rwbs_kind] = read::layout(&BLOCK_ERROR_LAYOUT);
    if let Some(header) = output::header(kind::BLOCK_ERROR, read::number(&ctx, device)) {
        output::submit(BlockRecord {
            header,
            sector: read::number(&ctx, sector),
            sectors: read::number(&ctx, sectors),
            error: read::number(&ctx, error),
            rwbs: read::text(&ctx, rwbs, rwbs_kind),
        });
    }
    0
}
