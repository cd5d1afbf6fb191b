//! What the programs' records say.

use agent_core::{BootTime, Detection, Device, DeviceNumber, Observation, Signal, Source, Subject, observation::Fact};
use agent_ebpf::{BlockRecord, FilesystemRecord, Header, StallRecord, TaskRecord, kind};
use std::time::Duration;
use zerocopy::FromBytes;

/// `EOPNOTSUPP`, `EREMOTEIO`, `EAGAIN` and `ENOTSUPP` (not in userspace's headers) of a request: it was refused, not failed.
const REFUSALS: [i32; 4] = [-95, -121, -11, -524];

/// What came of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Decoded {
    /// A report.
    Seen(Observation),
    /// A report of something that is no fault.
    Harmless,
    /// It has not the shape of its kind, or no kind that is known.
    Malformed,
}

/// Takes a record apart. Devices have their number only.
pub(super) fn decode(bytes: &[u8]) -> Decoded {
    let Ok((header, _)) = Header::read_from_prefix(bytes) else { return Decoded::Malformed };
    let report = match header.kind {
        kind::HUNG_TASK => whole(bytes).map(|r: TaskRecord| {
            let comm = text(&r.comm);
            let detail = format!("task {comm}:{} is blocked for longer than the hung task timeout", header.object);
            (Detection::HungTask, Subject::Task { pid: header.object, comm }, detail)
        }),
        kind::OOM_VICTIM => whole(bytes).map(|r: TaskRecord| {
            let comm = text(&r.comm);
            let detail = format!("process {} ({comm}) is killed for want of memory", header.object);
            (Detection::OomKill, Subject::Task { pid: header.object, comm }, detail)
        }),
        kind::EXT4_ERROR => whole(bytes)
            .map(|r: FilesystemRecord| (Detection::Ext4Error, device(&header), format!("ext4 error in {}:{}", text(&r.place), r.number))),
        kind::EXT4_SHUTDOWN => whole(bytes)
            .map(|r: FilesystemRecord| (Detection::Ext4Shutdown, device(&header), format!("ext4 shut down, flags {}", r.number))),
        kind::XFS_SHUTDOWN => whole(bytes).map(|r: FilesystemRecord| {
            (Detection::XfsShutdown, device(&header), format!("XFS shut down in {}, reasons {:#x}", text(&r.place), r.number))
        }),
        kind::BLOCK_ERROR => match whole(bytes) {
            Some(r) if is_harmless(&r) => return Decoded::Harmless,
            other => other.map(|r| {
                let operation = text(&r.rwbs);
                let detail = format!("I/O error {} at sector {}, {} sectors, operation {operation}", r.error, r.sector, r.sectors);
                (Detection::BlockIoError, device(&header), detail)
            }),
        },
        kind::RCU_STALL => whole(bytes)
            .map(|r: StallRecord| (Detection::RcuStall, Subject::Machine, format!("RCU stall: {} {}", text(&r.flavour), text(&r.message)))),
        _ => None,
    };
    let Some((detection, subject, detail)) = report else { return Decoded::Malformed };
    let signal = Signal { detection, subject, detail, source: Source::Ebpf, sequence: None };
    Decoded::Seen(Observation { at: BootTime::after_boot(Duration::from_nanos(header.boot_ns)), fact: Fact::Signal(signal) })
}

/// A record of exactly this type's size.
fn whole<T: FromBytes>(bytes: &[u8]) -> Option<T> {
    T::read_from_bytes(bytes).ok()
}

/// A discard or a request that the device does not know may fail without the device being broken.
fn is_harmless(record: &BlockRecord) -> bool {
    // `D` is a discard, `DE` a secure erase; a flush or a write that is also `F`, `S`, `M`, ... is none.
    record.rwbs.first() == Some(&b'D') || REFUSALS.contains(&{ record.error })
}

fn device(header: &Header) -> Subject {
    Subject::Device(Device { name: None, number: Some(DeviceNumber::from_kernel(header.object)) })
}

/// A string of the kernel, for people: control characters are none of its business.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    let text = String::from_utf8_lossy(bytes.get(..end).unwrap_or_default());
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A record as the programs write it: numbers in the machine's order, no padding.
    fn raw(kind: u32, object: u32, rest: &[&[u8]]) -> Vec<u8> {
        let mut bytes = 5_000_000_007u64.to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(object.to_ne_bytes());
        rest.iter().for_each(|part| bytes.extend(*part));
        bytes
    }

    fn padded<const N: usize>(text: &str) -> [u8; N] {
        let mut bytes = [0; N];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        bytes
    }

    #[test]
    fn a_hung_task_is_named_with_its_pid_and_time() {
        let Decoded::Seen(seen) = decode(&raw(kind::HUNG_TASK, 77, &[&padded::<16>("touch")])) else { panic!("decoded") };
        assert_eq!(seen.at.since_boot(), Duration::from_nanos(5_000_000_007));
        let Fact::Signal(signal) = seen.fact else { panic!("a signal") };
        assert_eq!((signal.detection, signal.subject), (Detection::HungTask, Subject::Task { pid: 77, comm: "touch".into() }));
    }

    #[test]
    fn a_filesystem_is_known_by_the_kernels_number() {
        let line = 129u64.to_ne_bytes();
        let Decoded::Seen(seen) = decode(&raw(kind::EXT4_ERROR, 7 << 20 | 3, &[&line, &padded::<32>("trigger_test_error")])) else {
            panic!("decoded")
        };
        let Fact::Signal(signal) = seen.fact else { panic!("a signal") };
        assert_eq!(signal.subject, Subject::Device(Device { name: None, number: Some(DeviceNumber { major: 7, minor: 3 }) }));
        assert_eq!(signal.detail, "ext4 error in trigger_test_error:129");
    }

    #[test]
    fn a_request_that_was_only_refused_is_no_fault() {
        let block = |rwbs: &str, error: i32| {
            decode(&raw(kind::BLOCK_ERROR, 8 << 20, &[&9u64.to_ne_bytes(), &8u32.to_ne_bytes(), &error.to_ne_bytes(), &padded::<16>(rwbs)]))
        };
        assert_eq!(block("DS", -5), Decoded::Harmless);
        assert_eq!(block("W", -95), Decoded::Harmless);
        assert!(matches!(block("WFS", -5), Decoded::Seen(_)));
        assert!(matches!(block("R", -61), Decoded::Seen(_)));
    }

    #[test]
    fn a_record_of_another_size_or_kind_is_dropped() {
        let good = raw(kind::HUNG_TASK, 77, &[&padded::<16>("touch")]);
        assert_eq!(decode(&good[..good.len() - 1]), Decoded::Malformed);
        assert_eq!(decode(&[good.as_slice(), &[0]].concat()), Decoded::Malformed);
        assert_eq!(decode(&raw(99, 0, &[&[0; 16]])), Decoded::Malformed);
        assert_eq!(decode(&[]), Decoded::Malformed);
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_record_or_malformed(kind in 0..9u32, rest in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = decode(&raw(kind, 1, &[&rest]));
            let _ = decode(&rest);
        }
    }
}
