//! Stalls of RCU: `rcu:rcu_stall_warning` (5.13).

use agent_ebpf::{StallRecord, kind, layout};
use aya_ebpf::{macros::tracepoint, programs::TracePointContext};

use crate::{output, read};

#[unsafe(no_mangle)]
static RCU_STALL_LAYOUT: [u32; layout::RCU_STALL] = [0; layout::RCU_STALL];

#[tracepoint]
fn rcu_stall_warning(ctx: TracePointContext) -> u32 {
    let [flavour, flavour_kind, message, message_kind] = read::layout(&RCU_STALL_LAYOUT);
    if let Some(header) = output::header(kind::RCU_STALL, 0) {
        output::submit(StallRecord {
            header,
            flavour: read::text(&ctx, flavour, flavour_kind),
            message: read::text(&ctx, message, message_kind),
        });
    }
    0
}
