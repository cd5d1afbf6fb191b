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

#[cfg(test)]
mod tests {
    use agent_ebpf::string::{ABSENT, DATA_LOC, INLINE, POINTER};

    use super::*;

    /// Declaration, offset and size.
    type Fields = &'static [(&'static str, u32, u32)];

    /// Program, kernels, its record's fields there, and the layout that follows. Read from the format files of Debian's
    /// 6.1.192 and 6.12.118 and of 6.18.44; fields that are not used are left out here, and in `mark_victim` on the oldest there are no more.
    const RECORDED: [(&str, &str, Fields, &[u32]); 10] = [
        ("sched_process_hang", "6.1, 6.12", &[("char comm[16]", 8, 16), ("pid_t pid", 24, 4)], &[24, 8, INLINE]),
        ("sched_process_hang", "6.18", &[("__data_loc char[] comm", 8, 4), ("pid_t pid", 12, 4)], &[12, 8, DATA_LOC]),
        ("ext4_error", "all", &[("dev_t dev", 8, 4), ("const char * function", 16, 8), ("unsigned line", 24, 4)], &[8, 24, 16, POINTER]),
        ("ext4_shutdown", "all", &[("dev_t dev", 8, 4), ("unsigned flags", 12, 4)], &[8, 12]),
        (
            "xfs_force_shutdown",
            "all",
            &[("dev_t dev", 8, 4), ("int ptag", 12, 4), ("int flags", 16, 4), ("__data_loc char[] fname", 20, 4), ("int line_num", 24, 4)],
            &[8, 16, 20, DATA_LOC],
        ),
        (
            "block_rq_error",
            "6.1",
            &[
                ("dev_t dev", 8, 4),
                ("sector_t sector", 16, 8),
                ("unsigned int nr_sector", 24, 4),
                ("int error", 28, 4),
                ("char rwbs[8]", 32, 8),
                ("__data_loc char[] cmd", 40, 4),
            ],
            &[8, 16, 24, 28, 32, INLINE],
        ),
        (
            "block_rq_error",
            "6.12, 6.18 (there rwbs has 10 bytes)",
            &[
                ("dev_t dev", 8, 4),
                ("sector_t sector", 16, 8),
                ("unsigned int nr_sector", 24, 4),
                ("int error", 28, 4),
                ("unsigned short ioprio", 32, 2),
                ("char rwbs[8]", 34, 8),
                ("__data_loc char[] cmd", 44, 4),
            ],
            &[8, 16, 24, 28, 34, INLINE],
        ),
        (
            "mark_victim",
            "all of these",
            &[("int pid", 8, 4), ("__data_loc char[] comm", 12, 4), ("unsigned long total_vm", 16, 8), ("short oom_score_adj", 64, 2)],
            &[8, 12, DATA_LOC],
        ),
        ("mark_victim", "before 6.9", &[("int pid", 8, 4)], &[8, 0, ABSENT]),
        ("rcu_stall_warning", "all", &[("const char * rcuname", 8, 8), ("const char * msg", 16, 8)], &[8, POINTER, 16, POINTER]),
    ];

    fn format(fields: Fields) -> Format {
        let common = [("unsigned short common_type", 0, 2), ("unsigned char common_flags", 2, 1), ("int common_pid", 4, 4)];
        let lines = common
            .iter()
            .chain(fields)
            .map(|(field, offset, size)| format!("\tfield:{field};\toffset:{offset};\tsize:{size};\tsigned:0;\n"));
        Format::parse(&format!("name: x\nID: 1\nformat:\n{}\nprint fmt: \"%d\", REC->pid\n", lines.collect::<String>()))
    }

    #[test]
    fn every_program_finds_its_fields_on_every_kernel() {
        for (name, kernels, fields, expected) in RECORDED {
            let program = PROGRAMS.iter().find(|program| program.name == name).unwrap();
            assert_eq!((program.layout)(&format(fields)).as_deref(), Ok(expected), "{name} on {kernels}");
        }
    }

    #[test]
    fn a_program_whose_field_is_missing_says_which() {
        for program in &PROGRAMS {
            let missing = (program.layout)(&format(&[])).unwrap_err().to_string();
            assert!(missing.starts_with("its record has no field "), "{}: {missing}", program.name);
        }
    }
}
