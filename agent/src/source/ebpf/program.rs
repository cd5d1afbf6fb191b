//! The programs: which tracepoint each hangs on, and what it must be told of the record's layout. Adding one is a line here, and its file, record
//! and kernel test.

use agent_ebpf::layout;

use super::format::{Format, FormatError};

/// One eBPF program.
pub(super) struct Program {
    /// Its name in the object, and the tracepoint's name.
    pub(super) name: &'static str,
    /// The group where the tracepoint usually is. It has moved before: then it is found by its name.
    pub(super) group: &'static str,
    /// The global with its layout.
    pub(super) global: &'static str,
    /// Fills that in.
    pub(super) layout: fn(&Format) -> Result<Vec<u32>, FormatError>,
}

/// All programs, in the order in which they are shown.
pub(super) const PROGRAMS: [Program; 7] = [
    Program {
        name: "sched_process_hang",
        group: "sched",
        global: "HUNG_TASK_LAYOUT",
        layout: |f| {
            let [comm, kind] = f.string("comm")?;
            fixed::<{ layout::HUNG_TASK }>([f.number("pid", 4)?, comm, kind])
        },
    },
    Program {
        name: "ext4_error",
        group: "ext4",
        global: "EXT4_ERROR_LAYOUT",
        layout: |f| {
            let [function, kind] = f.string("function")?;
            fixed::<{ layout::EXT4_ERROR }>([f.number("dev", 4)?, f.number("line", 4)?, function, kind])
        },
    },
    Program {
        name: "ext4_shutdown",
        group: "ext4",
        global: "EXT4_SHUTDOWN_LAYOUT",
        layout: |f| fixed::<{ layout::EXT4_SHUTDOWN }>([f.number("dev", 4)?, f.number("flags", 4)?]),
    },
    Program {
        name: "xfs_force_shutdown",
        group: "xfs",
        global: "XFS_SHUTDOWN_LAYOUT",
        layout: |f| {
            let [file, kind] = f.string_if_there("fname")?;
            fixed::<{ layout::XFS_SHUTDOWN }>([f.number("dev", 4)?, f.number("flags", 4)?, file, kind])
        },
    },
    Program {
        name: "block_rq_error",
        group: "block",
        global: "BLOCK_ERROR_LAYOUT",
        layout: |f| {
            let [rwbs, kind] = f.string("rwbs")?;
            let numbers = [f.number("dev", 4)?, f.number("sector", 8)?, f.number("nr_sector", 4)?, f.number("error", 4)?];
            let [device, sector, sectors, error] = numbers;
            fixed::<{ layout::BLOCK_ERROR }>([device, sector, sectors, error, rwbs, kind])
        },
    },
    Program {
        name: "mark_victim",
        group: "oom",
        global: "OOM_VICTIM_LAYOUT",
        layout: |f| {
            let [comm, kind] = f.string_if_there("comm")?;
            fixed::<{ layout::OOM_VICTIM }>([f.number("pid", 4)?, comm, kind])
        },
    },
    Program {
        name: "rcu_stall_warning",
        group: "rcu",
        global: "RCU_STALL_LAYOUT",
        layout: |f| {
            let [flavour, flavour_kind] = f.string("rcuname")?;
            let [message, message_kind] = f.string("msg")?;
            fixed::<{ layout::RCU_STALL }>([flavour, flavour_kind, message, message_kind])
        },
    },
];

/// A layout of exactly the length that the program expects.
fn fixed<const N: usize>(numbers: [u32; N]) -> Result<Vec<u32>, FormatError> {
    Ok(numbers.to_vec())
}
