//! The files that an eBPF object is built from, with their digests: shared by the build script that refuses a stale object and by the command
//! that builds a new one.

use std::{collections::BTreeMap, fs, io, path::Path};

use sha2::{Digest as _, Sha256};

/// Path below `agent-ebpf/` to SHA-256, of everything that goes into the object.
pub(crate) fn digests(root: &Path) -> io::Result<BTreeMap<String, String>> {
    let mut names: Vec<String> = ["Cargo.toml", "Cargo.lock"].map(String::from).into();
    for entry in fs::read_dir(root.join("src"))? {
        names.push(format!("src/{}", entry?.file_name().to_string_lossy()));
    }
    let digest = |name: String| {
        let hash = Sha256::digest(fs::read(root.join(&name))?);
        Ok((name, hash.iter().map(|byte| format!("{byte:02x}")).collect()))
    };
    names.into_iter().map(digest).collect()
}
