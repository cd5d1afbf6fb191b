//! The folder outside the checkout that keeps what is costly to make: tools, servers, root filesystems.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

/// `$NODEWARD_CACHE`, or `~/.cache/nodeward`.
pub(crate) fn directory() -> Result<PathBuf> {
    if let Some(dir) = std::env::var_os("NODEWARD_CACHE") {
        return Ok(std::path::absolute(dir)?);
    }
    let home = std::env::home_dir().context("neither NODEWARD_CACHE nor HOME is set: nowhere to keep what the tests need")?;
    Ok(home.join(".cache/nodeward"))
}

/// The folder `name`, made by `make` if it is not there: made beside it and moved into place, so that it is whole or absent, and by one
/// process at a time.
pub(crate) fn kept(name: &str, make: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
    kept_in(&directory()?, name, make)
}

fn kept_in(cache: &Path, name: &str, make: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
    let place = cache.join(name);
    if place.exists() {
        return Ok(place);
    }
    fs::create_dir_all(cache).with_context(|| format!("cannot make {}", cache.display()))?;
    let lock = File::create(cache.join(format!("{name}.lock")))?;
    lock.lock().with_context(|| format!("cannot lock {name} in the cache"))?;
    if place.exists() {
        return Ok(place);
    }
    let unfinished = cache.join(format!("{name}.unfinished"));
    if unfinished.exists() {
        fs::remove_dir_all(&unfinished).with_context(|| format!("cannot remove {}", unfinished.display()))?;
    }
    fs::create_dir(&unfinished)?;
    make(&unfinished)?;
    fs::rename(&unfinished, &place).with_context(|| format!("cannot move {} into place", place.display()))?;
    Ok(place)
}

/// A short name for these inputs: two lists of inputs have the same only if they are the same.
pub(crate) fn key(inputs: &[&[u8]]) -> String {
    let mut hash = Sha256::new();
    for input in inputs {
        hash.update((input.len() as u64).to_le_bytes());
        hash.update(input);
    }
    hex(&hash.finalize())[..16].to_owned()
}

/// Lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;

    #[test]
    fn what_failed_half_way_is_made_again_and_what_is_whole_is_kept() {
        let cache = tempfile::tempdir().unwrap();
        let failed = kept_in(cache.path(), "thing", |dir| {
            fs::write(dir.join("half"), "")?;
            bail!("no luck")
        });
        assert_eq!(failed.unwrap_err().to_string(), "no luck");
        let place = kept_in(cache.path(), "thing", |dir| Ok(fs::write(dir.join("whole"), "")?)).unwrap();
        assert!(place.join("whole").exists() && !place.join("half").exists());
        let again = kept_in(cache.path(), "thing", |_| bail!("made twice")).unwrap();
        assert_eq!(again, place);
    }

    #[test]
    fn a_key_tells_where_one_input_ends_and_the_next_begins() {
        assert_eq!(key(&[b"ab", b"c"]), key(&[b"ab", b"c"]));
        assert_ne!(key(&[b"ab", b"c"]), key(&[b"a", b"bc"]));
        assert_eq!(key(&[]), "e3b0c44298fc1c14");
    }
}
