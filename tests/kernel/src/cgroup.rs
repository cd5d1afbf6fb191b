//! A control group named like a unit, so that a task in it is that unit's to the agent.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use crate::undo::Undo;

/// Which hierarchy the group is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hierarchy {
    /// cgroup 2.
    Unified,
    /// systemd's own of cgroup 1.
    Systemd,
    /// Whichever limits memory.
    Memory,
}

/// A group. It is gone when this is dropped.
#[derive(Debug)]
pub struct Cgroup {
    directory: PathBuf,
    _undo: Undo,
}

impl Cgroup {
    /// Makes one of this name at the top of a hierarchy.
    ///
    /// # Errors
    /// If this machine has no such hierarchy, or the group cannot be made.
    pub fn new(hierarchy: Hierarchy, name: &str) -> Result<Self> {
        let directory = top(hierarchy)?.join(name);
        let undo = Undo::by("test ! -d \"$0\" || rmdir \"$0\"", &[&directory])?;
        fs::create_dir(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
        Ok(Self { directory, _undo: undo })
    }

    /// Lets the group have so much memory and no more: who wants more is killed.
    ///
    /// # Errors
    /// If it is not in a hierarchy that limits memory.
    pub fn limit_memory(&self, bytes: u64) -> Result<()> {
        let old = self.directory.join("memory.limit_in_bytes");
        let file = if old.exists() { old } else { self.directory.join("memory.max") };
        fs::write(&file, bytes.to_string()).with_context(|| format!("cannot write {}", file.display()))
    }

    /// Where a process writes its own pid to get into it.
    #[must_use]
    pub fn entrance(&self) -> PathBuf {
        self.directory.join("cgroup.procs")
    }
}

/// Whether this machine has it mounted.
#[must_use]
pub fn has(hierarchy: Hierarchy) -> bool {
    top(hierarchy).is_ok()
}

fn top(hierarchy: Hierarchy) -> Result<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").context("cannot read the mount table")?;
    let is_it = |fs_type: &str, options: &str| match hierarchy {
        Hierarchy::Unified => fs_type == "cgroup2",
        Hierarchy::Systemd => is_of_cgroup_1(fs_type, options, "name=systemd"),
        Hierarchy::Memory => is_of_cgroup_1(fs_type, options, "memory"),
    };
    let found = mounts.lines().find_map(|line| {
        let mut words = line.split(' ').skip(1);
        let (place, fs_type, options) = (words.next()?, words.next()?, words.next()?);
        is_it(fs_type, options).then(|| Path::new(place).to_owned())
    });
    match (found, hierarchy) {
        (None, Hierarchy::Memory) => top(Hierarchy::Unified),
        (found, _) => found.with_context(|| format!("this machine has no {hierarchy:?} hierarchy of control groups")),
    }
}

fn is_of_cgroup_1(fs_type: &str, options: &str, controller: &str) -> bool {
    fs_type == "cgroup" && options.split(',').any(|option| option == controller)
}
