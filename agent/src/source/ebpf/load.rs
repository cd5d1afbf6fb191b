//! Loads the object and attaches what this kernel can have. Everything is held by descriptors: when they close, nothing is left.

use std::{
    collections::BTreeMap,
    io,
    os::fd::{AsFd as _, OwnedFd},
};

use agent_ebpf::counter;
use aya::{
    Ebpf, EbpfLoader,
    maps::{MapData, PerCpuArray, RingBuf},
    programs::TracePoint,
};

use super::{
    format::Format,
    program::{PROGRAMS, Program},
    tracefs::Tracefs,
};
use crate::{host::Host, syscall::perf};

/// The object, built by `cargo xtask build-ebpf` and checked in; `build.rs` refuses one that the sources do not give.
static OBJECT: &[u8] = aya::include_bytes_aligned!(env!("NODEWARD_EBPF_OBJECT"));

/// What is loaded and attached.
pub(super) struct Loaded {
    pub(super) records: RingBuf<MapData>,
    counters: PerCpuArray<MapData, u64>,
    /// Programs that are not attached, with the reason.
    pub(super) absent: BTreeMap<&'static str, String>,
    /// The layouts that were found, by program.
    layouts: BTreeMap<&'static str, Vec<u32>>,
    /// Closing these detaches; they go before the programs.
    _links: Vec<OwnedFd>,
    _ebpf: Ebpf,
}

/// Sums over all CPUs, since loading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counters {
    pub(super) lost: u64,
    pub(super) held_back: u64,
}

impl Loaded {
    /// Loads and attaches.
    ///
    /// # Errors
    /// Why no program at all can be had, for people.
    pub(super) fn new(host: &Host) -> Result<Self, String> {
        let tracefs = Tracefs::find(host)?;
        let (layouts, mut absent) = layouts(&tracefs);
        let mut loader = EbpfLoader::new();
        for program in &PROGRAMS {
            if let Some(layout) = layouts.get(program.name) {
                set_layout(&mut loader, program.global, layout)?;
            }
        }
        let mut ebpf = loader.load(OBJECT).map_err(|e| format!("the object cannot be loaded: {:#}", anyhow::Error::from(e)))?;
        let mut links = Vec::new();
        for program in PROGRAMS.iter().filter(|p| layouts.contains_key(p.name)) {
            match attach(&mut ebpf, program, &tracefs) {
                Ok(link) => links.push(link),
                Err(why) => drop(absent.insert(program.name, why)),
            }
        }
        if links.is_empty() {
            let reasons: Vec<_> = absent.iter().map(|(name, why)| format!("{name}: {why}")).collect();
            return Err(format!("no program can be attached: {}", reasons.join("; ")));
        }
        let missing = |what: &str| format!("the object has no map {what}");
        let records = RingBuf::try_from(ebpf.take_map("RECORDS").ok_or_else(|| missing("RECORDS"))?).map_err(|e| e.to_string())?;
        let counters = PerCpuArray::try_from(ebpf.take_map("COUNTERS").ok_or_else(|| missing("COUNTERS"))?).map_err(|e| e.to_string())?;
        Ok(Self { records, counters, absent, layouts, _links: links, _ebpf: ebpf })
    }

    /// What the programs counted.
    pub(super) fn counters(&self) -> Counters {
        let sum = |slot| self.counters.get(&slot, 0).map_or(0, |values| values.iter().sum());
        Counters { lost: sum(counter::LOST), held_back: sum(counter::HELD_BACK) }
    }

    /// Whether a tracepoint has appeared that was not there: its module has been loaded.
    pub(super) fn could_have_more(&self, host: &Host) -> bool {
        let Ok(tracefs) = Tracefs::find(host) else { return false };
        layouts(&tracefs).0.keys().any(|name| !self.layouts.contains_key(name))
    }
}

/// The layouts of those tracepoints that are there, and why the others are not.
fn layouts(tracefs: &Tracefs) -> (BTreeMap<&'static str, Vec<u32>>, BTreeMap<&'static str, String>) {
    let (mut found, mut absent) = (BTreeMap::new(), BTreeMap::new());
    for program in &PROGRAMS {
        match layout(tracefs, program) {
            Ok(layout) => drop(found.insert(program.name, layout)),
            Err(why) => drop(absent.insert(program.name, why)),
        }
    }
    (found, absent)
}

fn layout(tracefs: &Tracefs, program: &Program) -> Result<Vec<u32>, String> {
    let (group, name) = (program.group, program.name);
    let format = tracefs.tracepoint(group, name).and_then(|tracepoint| tracepoint.format()).map_err(|e| {
        match e.kind() == io::ErrorKind::NotFound {
            true => format!("this kernel has no tracepoint {group}:{name}, or its module is not loaded"),
            false => format!("the format of tracepoint {group}:{name} cannot be read: {e}"),
        }
    })?;
    (program.layout)(&Format::parse(&format)).map_err(|e| format!("tracepoint {group}:{name}: {e}"))
}

/// A global can be set only as an array of the length that it has.
fn set_layout<'a>(loader: &mut EbpfLoader<'a>, global: &'static str, layout: &'a [u32]) -> Result<(), String> {
    match layout.len() {
        2 => loader.override_global(global, exact::<2>(layout)?, true),
        3 => loader.override_global(global, exact::<3>(layout)?, true),
        4 => loader.override_global(global, exact::<4>(layout)?, true),
        6 => loader.override_global(global, exact::<6>(layout)?, true),
        other => return Err(format!("{global} has {other} numbers")),
    };
    Ok(())
}

fn exact<const N: usize>(layout: &[u32]) -> Result<&[u32; N], String> {
    layout.try_into().map_err(|_| "a layout of another length".into())
}

fn attach(ebpf: &mut Ebpf, program: &Program, tracefs: &Tracefs) -> Result<OwnedFd, String> {
    let loaded: &mut TracePoint =
        ebpf.program_mut(program.name).ok_or("the object has no such program")?.try_into().map_err(|_| "no tracepoint program")?;
    loaded.load().map_err(|e| format!("the kernel does not load it: {}", short(&anyhow::Error::from(e))))?;
    let id = tracefs.tracepoint(program.group, program.name).and_then(|t| t.id()).map_err(|e| format!("its id cannot be read: {e}"))?;
    let fd = loaded.fd().map_err(|e| e.to_string())?;
    perf::attach(id, fd.as_fd()).map_err(|e| format!("the kernel does not attach it: {e}"))
}

/// A verifier's log is for developers; its last line is for everybody.
fn short(error: &anyhow::Error) -> String {
    let text = format!("{error:#}");
    log::debug!("{text}");
    text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default().trim().chars().take(200).collect()
}
