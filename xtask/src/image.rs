//! `cargo xtask image`: the agent as one static binary in an OCI archive, the same bytes for the same binary.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use object::{Endianness, elf, read::elf::ProgramHeader};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::{cache, process};

/// What deploy/ calls it; [`crate::manifests`] keeps the two the same. No registry: it is imported, or pushed under another name.
pub(crate) const DEFAULT_NAME: &str = concat!("localhost/nodeward-agent:", env!("CARGO_PKG_VERSION"));

/// Where the binary lies in the image.
const BINARY: &str = "nodeward-agent";

/// Builds the agent and writes the archive.
pub(crate) fn run(output: &Path, name: &str) -> Result<()> {
    let binary = build()?;
    write(output, name, &binary)?;
    println!("{name} in {}: ctr --namespace k8s.io images import {}", output.display(), output.display());
    Ok(())
}

/// The shipped binary: optimised, stripped, and needing no library and no loader of the system it runs on.
pub(crate) fn build() -> Result<PathBuf> {
    let args = shipped();
    let binary = process::build_agent(&args.iter().map(String::as_str).collect::<Vec<_>>(), None)?;
    let bytes = fs::read(&binary)?;
    if needs_loader(&bytes).with_context(|| format!("{} cannot be checked", binary.display()))? {
        bail!("{} is not static: it names a loader that the image does not have", binary.display());
    }
    Ok(binary)
}

/// The arguments of cargo for what ships.
pub(crate) fn shipped() -> Vec<String> {
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let mut flags = vec!["-Ctarget-feature=+crt-static".to_owned()];
    // What a panic says of where it was must not depend on whose machine built it.
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from).or_else(|| std::env::home_dir().map(|home| home.join(".cargo")));
    flags.extend(home.map(|home| format!("--remap-path-prefix={}=/cargo", home.display())));
    // With an explicit target the flags do not reach build scripts and macros, which cannot be static.
    let flags = format!("target.{target}.rustflags={flags:?}");
    ["--release", "--locked", "--target", &target, "--config", &flags].map(String::from).into()
}

/// Writes the archive of this binary.
pub(crate) fn write(output: &Path, name: &str, binary: &Path) -> Result<()> {
    let binary = fs::read(binary).with_context(|| format!("cannot read {}", binary.display()))?;
    if let Some(folder) = output.parent() {
        fs::create_dir_all(folder)?;
    }
    let image = Image { name, entrypoint: &["/nodeward-agent"], files: BTreeMap::from([(BINARY.to_owned(), binary)]) };
    fs::write(output, image.archive()?).with_context(|| format!("cannot write {}", output.display()))
}

/// An image of one layer.
pub(crate) struct Image<'a> {
    /// What it is called, with its tag.
    pub(crate) name: &'a str,
    /// What it runs.
    pub(crate) entrypoint: &'a [&'a str],
    /// Its files by their path without the leading slash; all may be executed.
    pub(crate) files: BTreeMap<String, Vec<u8>>,
}

impl Image<'_> {
    /// The archive as OCI image-spec 1.1 lays it out, uncompressed: `index.json` names the manifest, that names configuration and layer.
    pub(crate) fn archive(&self) -> Result<Vec<u8>> {
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        let mut files = BTreeMap::from([("oci-layout".to_owned(), json!({"imageLayoutVersion": "1.0.0"}).to_string().into_bytes())]);
        let mut blob = |kind: &str, bytes: Vec<u8>| -> Value {
            let digest = cache::hex(&Sha256::digest(&bytes));
            let size = bytes.len();
            files.insert(format!("blobs/sha256/{digest}"), bytes);
            json!({"mediaType": format!("application/vnd.oci.image.{kind}"), "digest": format!("sha256:{digest}"), "size": size})
        };
        let layer = blob("layer.v1.tar", tar(&self.files, 0o755)?);
        let configuration = json!({
            "architecture": architecture,
            "os": "linux",
            "config": {"Entrypoint": self.entrypoint},
            "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]},
        });
        let configuration = blob("config.v1+json", configuration.to_string().into_bytes());
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": configuration,
            "layers": [layer],
            "annotations": {
                "org.opencontainers.image.version": env!("CARGO_PKG_VERSION"),
                "org.opencontainers.image.licenses": env!("CARGO_PKG_LICENSE"),
            },
        });
        let mut manifest = blob("manifest.v1+json", manifest.to_string().into_bytes());
        manifest["annotations"] = json!({"io.containerd.image.name": self.name});
        files.insert("index.json".to_owned(), json!({"schemaVersion": 2, "manifests": [manifest]}).to_string().into_bytes());
        tar(&files, 0o644)
    }
}

/// A tar archive with everything that varies left out: owner root, time 0, in order of name.
fn tar(files: &BTreeMap<String, Vec<u8>>, mode: u32) -> Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    for (name, bytes) in files {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Regular);
        header.set_size(bytes.len() as u64);
        header.set_mode(mode);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        archive.append_data(&mut header, name, bytes.as_slice())?;
    }
    Ok(archive.into_inner()?)
}

/// Whether the program asks for a dynamic loader (`PT_INTERP`).
fn needs_loader(program: &[u8]) -> Result<bool> {
    use object::read::elf::FileHeader;
    let header = elf::FileHeader64::<Endianness>::parse(program).context("no 64-bit ELF program")?;
    let endian = header.endian()?;
    Ok(header.program_headers(endian, program)?.iter().any(|segment| segment.p_type(endian) == elf::PT_INTERP))
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn archive(name: &str, binary: &[u8]) -> Vec<u8> {
        let files = BTreeMap::from([("nodeward-agent".to_owned(), binary.to_vec())]);
        Image { name, entrypoint: &["/nodeward-agent"], files }.archive().unwrap()
    }

    fn unpack(archive: &[u8]) -> BTreeMap<String, Vec<u8>> {
        let mut archive = tar::Archive::new(archive);
        let entries = archive.entries().unwrap().map(|entry| {
            let mut entry = entry.unwrap();
            assert_eq!(entry.header().mtime().unwrap(), 0);
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).unwrap();
            (entry.path().unwrap().to_str().unwrap().to_owned(), bytes)
        });
        entries.collect()
    }

    #[test]
    fn the_same_binary_gives_the_same_archive() {
        assert_eq!(archive("a:1", b"binary"), archive("a:1", b"binary"));
        assert_ne!(archive("a:1", b"binary"), archive("a:1", b"other"));
    }

    #[test]
    fn every_digest_leads_to_a_blob_of_that_size_and_the_last_one_to_the_binary() {
        let files = unpack(&archive("localhost/a:1", b"binary"));
        let blob = |descriptor: &Value| {
            let digest = descriptor["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap();
            let bytes = &files[&format!("blobs/sha256/{digest}")];
            assert_eq!(descriptor["size"], bytes.len());
            assert_eq!(cache::hex(&Sha256::digest(bytes)), digest);
            bytes.clone()
        };
        let index: Value = serde_json::from_slice(&files["index.json"]).unwrap();
        assert_eq!(index["manifests"][0]["annotations"]["io.containerd.image.name"], "localhost/a:1");
        let manifest: Value = serde_json::from_slice(&blob(&index["manifests"][0])).unwrap();
        let configuration: Value = serde_json::from_slice(&blob(&manifest["config"])).unwrap();
        assert_eq!(configuration["rootfs"]["diff_ids"][0], manifest["layers"][0]["digest"]);
        assert_eq!(configuration["config"]["Entrypoint"], json!(["/nodeward-agent"]));
        let layer = unpack(&blob(&manifest["layers"][0]));
        assert_eq!(layer, BTreeMap::from([("nodeward-agent".to_owned(), b"binary".to_vec())]));
    }

    #[test]
    fn a_program_with_a_loader_is_told_from_one_without_and_from_what_is_none() {
        let shell = fs::read("/bin/sh").unwrap();
        assert!(needs_loader(&shell).unwrap());
        assert!(needs_loader(b"#!/bin/sh\n").is_err());
        assert!(needs_loader(&shell[..40]).is_err());
    }
}
