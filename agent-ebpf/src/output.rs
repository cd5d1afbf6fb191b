//! Where records go, and how many may come from one object.

use agent_ebpf::{Header, counter};
use aya_ebpf::{
    helpers::generated::bpf_ktime_get_boot_ns,
    macros::map,
    maps::{LruHashMap, PerCpuArray, RingBuf},
};

/// 256 KiB: 4,000 records, the worst second of every object that the rate limit knows. A power of two and a multiple of the page size.
#[map]
static RECORDS: RingBuf = RingBuf::with_byte_size(256 * 1024, 0);

#[map]
static COUNTERS: PerCpuArray<u64> = PerCpuArray::with_max_entries(counter::COUNT, 0);

/// Who reports how much; the least recently used goes when there are more.
#[map]
static RATES: LruHashMap<Key, Rate> = LruHashMap::with_max_entries(1024, 0);

/// One object's reports through one tracepoint.
#[repr(C)]
#[derive(Clone, Copy)]
struct Key {
    kind: u32,
    object: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Rate {
    window_start: u64,
    records: u64,
}

/// At most so many records of one object ...
const BURST: u64 = 16;
/// ... in so many nanoseconds. A storm (dozens of reports a second from one dying disk) then cannot push the others out.
const WINDOW: u64 = 1_000_000_000;

/// A header of now, if this object may report.
pub(crate) fn header(kind: u32, object: u32) -> Option<Header> {
    // SAFETY: the helper has no requirements.
    let boot_ns = unsafe { bpf_ktime_get_boot_ns() };
    let key = Key { kind, object };
    let is_allowed = match RATES.get_ptr_mut(&key) {
        Some(rate) => {
            // SAFETY: the map's values are whole, aligned `Rate`s. Two CPUs may count at once: then a record more or less goes out.
            let rate = unsafe { &mut *rate };
            if boot_ns.wrapping_sub(rate.window_start) > WINDOW {
                rate.window_start = boot_ns;
                rate.records = 0;
            }
            rate.records += 1;
            rate.records <= BURST
        }
        None => {
            // If even that fails there is no limit, which is better than no report.
            let _ = RATES.insert(&key, &Rate { window_start: boot_ns, records: 1 }, 0);
            true
        }
    };
    if !is_allowed {
        count(counter::HELD_BACK);
        return None;
    }
    Some(Header { boot_ns, kind, object })
}

/// Hands a record to the agent.
pub(crate) fn submit<T: 'static>(record: T) {
    match RECORDS.reserve::<T>(0) {
        Some(mut slot) => {
            slot.write(record);
            slot.submit(0);
        }
        None => count(counter::LOST),
    }
}

fn count(slot: u32) {
    if let Some(counter) = COUNTERS.get_ptr_mut(slot) {
        // SAFETY: a per-CPU value, and the programs of one tracepoint do not interrupt themselves.
        unsafe { *counter += 1 };
    }
}
