//! What the agent remembers of this boot, on the host: one file, replaced whole, gone with a reboot.

use std::{
    fs::File,
    io::{self, Read as _, Write as _},
    os::fd::OwnedFd,
    path::Path,
};

use agent_core::Memory;
use rustix::fs::{Mode, OFlags, openat, renameat, unlinkat};
use serde::{Deserialize, Serialize};

use crate::{export::Stamps, host::Host};

/// The file, and what is written before it takes the file's place.
const FILE: &str = "state.json";
const UNFINISHED: &str = "state.json.unfinished";

/// Changes whenever an older agent could misread what a newer one writes, or the other way round.
const VERSION: u32 = 1;

/// Nothing of ours comes near this; what is longer is not ours.
const LONGEST: u64 = 4 << 20;

/// What is remembered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Remembered {
    version: u32,
    boot_id: String,
    /// The core's.
    pub memory: Memory,
    /// Transition times that the exporters have given out.
    pub stamps: Stamps,
}

impl Remembered {
    /// Of this boot.
    #[must_use]
    pub fn new(boot_id: String, memory: Memory, stamps: Stamps) -> Self {
        Self { version: VERSION, boot_id, memory, stamps }
    }
}

/// Where it is kept.
#[derive(Debug)]
pub struct Store(OwnedFd);

impl Store {
    /// The state directory of the host, made if it is not there.
    ///
    /// # Errors
    /// If it can be neither entered nor made.
    pub fn open(host: &Host, directory: &Path) -> io::Result<Self> {
        host.open_or_make_directory(directory).map(Self)
    }

    /// What an earlier run of this boot left. Anything else, absent, broken, of another boot or another version, is a first start.
    #[must_use]
    pub fn load(&self, boot_id: &str) -> Option<Remembered> {
        let text = match self.read() {
            Ok(text) => text,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                log::info!("nothing is remembered: a first start");
                return None;
            }
            Err(e) => {
                log::warn!("what is remembered cannot be read, starting without: {e}");
                return None;
            }
        };
        match serde_json::from_slice::<Remembered>(&text) {
            Ok(remembered) if remembered.version == VERSION && remembered.boot_id == boot_id => Some(remembered),
            Ok(remembered) if remembered.boot_id != boot_id => {
                log::info!("what is remembered is of an earlier boot: a first start");
                None
            }
            Ok(remembered) => {
                log::warn!("what is remembered has version {}, not {VERSION}: starting without", remembered.version);
                None
            }
            Err(e) => {
                log::warn!("what is remembered is broken, starting without: {e}");
                None
            }
        }
    }

    /// Replaces what is remembered. After a crash the file is the old one or the new one, never half of it; it need not outlive the machine.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn save(&self, remembered: &Remembered) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let mut file = File::from(openat(&self.0, UNFINISHED, flags, Mode::RUSR | Mode::WUSR)?);
        let text = serde_json::to_vec(remembered)?;
        if let Err(e) = file.write_all(&text) {
            let _ = unlinkat(&self.0, UNFINISHED, rustix::fs::AtFlags::empty());
            return Err(e);
        }
        Ok(renameat(&self.0, UNFINISHED, &self.0, FILE)?)
    }

    fn read(&self) -> io::Result<Vec<u8>> {
        let file = File::from(openat(&self.0, FILE, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW, Mode::empty())?);
        let mut text = Vec::new();
        file.take(LONGEST).read_to_end(&mut text)?;
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use agent_core::{BootTime, Condition, ConditionType, Status};

    use super::*;
    use crate::config::HostSettings;

    fn store() -> (tempfile::TempDir, Store) {
        let root = tempfile::tempdir().unwrap();
        let host = Host::new(&HostSettings { root: root.path().into(), ..HostSettings::default() });
        let store = Store::open(&host, Path::new("/run/nodeward")).unwrap();
        (root, store)
    }

    fn remembered() -> Remembered {
        let kind = ConditionType::KernelDeadlock;
        let condition = Condition { kind, status: Status::True, reason: "R".into(), message: "m".into(), since: BootTime::ZERO };
        let memory = Memory { conditions: vec![condition], log_cursor: Some(7), ..Memory::default() };
        Remembered::new("boot".into(), memory, Stamps::default())
    }

    #[test]
    fn what_was_saved_is_what_this_boot_remembers() {
        let (root, store) = store();
        assert_eq!(store.load("boot"), None);
        store.save(&remembered()).unwrap();
        assert_eq!(store.load("boot"), Some(remembered()));
        assert_eq!(store.load("another boot"), None);
        let mode = |path: &str| fs::metadata(root.path().join(path)).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode("run/nodeward"), mode("run/nodeward/state.json")), (0o700, 0o600));
        assert!(!root.path().join("run/nodeward").join(UNFINISHED).exists());
    }

    #[test]
    fn what_is_broken_or_of_another_version_is_a_first_start() {
        let (root, store) = store();
        let file = root.path().join("run/nodeward").join(FILE);
        let newer = serde_json::to_string(&Remembered { version: VERSION + 1, ..remembered() }).unwrap();
        for text in ["", "{", "[]", "{\"version\":1}", "\u{0}", &newer] {
            fs::write(&file, text).unwrap();
            assert_eq!(store.load("boot"), None, "{text:?}");
        }
        store.save(&remembered()).unwrap();
        assert_eq!(store.load("boot"), Some(remembered()));
    }
}
