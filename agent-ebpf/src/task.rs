//! Tasks: hung (`sched:sched_process_hang`), and chosen to be killed (`oom:mark_victim`).

use agent_ebpf::{TaskRecord, kind, layout};
use aya_ebpf::{macros::tracepoint, programs::TracePointContext};

use crate::{output, read};

#[unsafe(no_mangle)]
static HUNG_TASK_LAYOUT: [u32; layout::HUNG_TASK] = [0; layout::HUNG_TASK];

#[unsafe(no_mangle)]
static OOM_VICTIM_LAYOUT: [u32; layout::OOM_VICTIM] = [0; layout::OOM_VICTIM];

#[tracepoint]
fn sched_process_hang(ctx: TracePointContext) -> u32 {
    report(&ctx, kind::HUNG_TASK, read::layout(&HUNG_TASK_LAYOUT))
}

#[tracepoint]
fn mark_victim(ctx: TracePointContext) -> u32 {
    report(&ctx, kind::OOM_VICTIM, read::layout(&OOM_VICTIM_LAYOUT))
}

fn report(ctx: &TracePointContext, kind: u32, [pid, comm, comm_kind]: [u32; 3]) -> u32 {
    if let Some(header) = output::header(kind, read::number(ctx, pid)) {
        output::submit(TaskRecord { header, comm: read::text(ctx, comm, comm_kind) });
    }
    0
}
