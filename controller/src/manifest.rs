//! The generated part of `deploy/crds`: definitions of the custom resources as YAML.

use std::{fs, io, path::Path};

use thiserror::Error;

use crate::api::definitions;

/// Why the definitions are not as they should be.
#[derive(Debug, Error)]
pub enum ManifestError {
    /// A definition that cannot be written as YAML.
    #[error("cannot write {0} as YAML")]
    Yaml(&'static str, #[source] serde_saphyr::ser::Error),
    /// A file that cannot be read or written.
    #[error("cannot read or write {0}")]
    File(String, #[source] io::Error),
    /// A file that is not what the code gives.
    #[error("{0} is stale: run cargo run -p nodeward-controller -- crds deploy/crds")]
    Stale(String),
}

/// Every definition as YAML, by file name.
pub fn files() -> Result<Vec<(&'static str, String)>, ManifestError> {
    let text = |(name, definition)| {
        let yaml = serde_saphyr::to_string(&definition).map_err(|e| ManifestError::Yaml(name, e))?;
        Ok((name, format!("# Generated: cargo run -p nodeward-controller -- crds deploy/crds\n{yaml}")))
    };
    definitions().into_iter().map(text).collect()
}

/// Writes them into a folder.
pub fn write(folder: &Path) -> Result<(), ManifestError> {
    for (name, text) in files()? {
        let path = folder.join(name);
        fs::write(&path, text).map_err(|e| ManifestError::File(path.display().to_string(), e))?;
    }
    Ok(())
}

/// Fails if a folder does not hold exactly them.
pub fn check(folder: &Path) -> Result<(), ManifestError> {
    for (name, text) in files()? {
        let path = folder.join(name);
        let found = fs::read_to_string(&path).map_err(|e| ManifestError::File(path.display().to_string(), e))?;
        if found != text {
            return Err(ManifestError::Stale(path.display().to_string()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_checked_in_is_what_the_code_gives() {
        check(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/crds")).unwrap();
    }

    #[test]
    fn a_changed_file_is_stale() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path()).unwrap();
        check(folder.path()).unwrap();
        fs::write(folder.path().join("remediationpools.yaml"), "other").unwrap();
        assert!(matches!(check(folder.path()), Err(ManifestError::Stale(_))));
    }
}
