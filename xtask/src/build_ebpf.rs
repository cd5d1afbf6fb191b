//! Builds the eBPF object that is checked in, with packaged, stable tools, and proves that it is what the sources give.

use std::{collections::BTreeMap, env, fs, path::Path, path::PathBuf};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::{
    cache,
    process::{command, output, repository, run},
    tool,
};

#[path = "../../agent-ebpf/inputs.rs"]
mod inputs;

/// The linker that makes one object with BTF of the compiler's bitcode. A newer one wants a newer LLVM.
const LINKER_VERSION: &str = "0.13.0";

/// The LLVM of Debian's compiler below, which the linker must share.
const LLVM: &str = "llvm-22";

/// Debian ships `core` for `bpfel-unknown-none` ready-made for this compiler, so that neither a nightly nor `-Zbuild-std` is needed.
const RUSTC: &str = "/usr/bin/rustc";
const CARGO: &str = "/usr/bin/cargo";
const TARGET: &str = "bpfel-unknown-none";

/// `agent-ebpf/prebuilt/inputs.json`: what the checked-in object was made of and with.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Provenance {
    inputs: BTreeMap<String, String>,
    toolchain: BTreeMap<String, String>,
}

/// Builds the object and writes it. With `check`, writes nothing: fails if it is not the one checked in though the toolchain is the same.
pub(crate) fn run_command(check: bool) -> Result<()> {
    if !check {
        let (built, provenance) = build()?;
        let prebuilt = crate_root().join("prebuilt");
        fs::create_dir_all(&prebuilt)?;
        fs::copy(&built, prebuilt.join("agent-ebpf.o"))?;
        fs::write(prebuilt.join("inputs.json"), serde_json::to_string_pretty(&provenance)? + "\n")?;
        println!("agent-ebpf/prebuilt/agent-ebpf.o: {} bytes", fs::metadata(built)?.len());
        return Ok(());
    }
    println!("{}", check_prebuilt()?.object.display());
    Ok(())
}

/// An object that was just built from source.
#[derive(Debug)]
pub(crate) struct Built {
    pub(crate) object: PathBuf,
    /// Whether it is, byte for byte, the one checked in. It may be another only if the toolchain is.
    pub(crate) is_the_same: bool,
}

/// Rebuilds from source and compares.
pub(crate) fn check_prebuilt() -> Result<Built> {
    let prebuilt = crate_root().join("prebuilt");
    let recorded = fs::read(prebuilt.join("inputs.json")).context("no eBPF object is checked in: run cargo xtask build-ebpf")?;
    let recorded: Provenance = serde_json::from_slice(&recorded).context("agent-ebpf/prebuilt/inputs.json")?;
    let (built, now) = build()?;
    if recorded.inputs != now.inputs {
        bail!("the checked-in eBPF object was not built from the sources as they are: run cargo xtask build-ebpf");
    }
    let is_the_same = fs::read(&built)? == fs::read(prebuilt.join("agent-ebpf.o"))?;
    if recorded.toolchain != now.toolchain {
        eprintln!("the eBPF toolchain differs from the one that built the checked-in object, so they are not compared byte for byte:");
        eprintln!("  checked in: {:?}\n  here:       {:?}", recorded.toolchain, now.toolchain);
    } else if !is_the_same {
        bail!("the checked-in eBPF object is not what its sources and its toolchain give: run cargo xtask build-ebpf");
    } else {
        eprintln!("the checked-in eBPF object is, byte for byte, what the sources give");
    }
    Ok(Built { object: built, is_the_same })
}

fn crate_root() -> PathBuf {
    repository().join("agent-ebpf")
}

/// Builds the object in the cache.
fn build() -> Result<(PathBuf, Provenance)> {
    tool::package_files(&[
        (RUSTC, "rustc-web"),
        (CARGO, "cargo-web"),
        ("/usr/lib/rustlib/bpfel-unknown-none", "libstd-rust-web-dev-bpf"),
        ("/usr/lib/llvm-22/include/llvm-c", "llvm-22-dev"),
        ("/usr/lib/llvm-22/bin/llvm-objcopy", "llvm-22"),
    ])?;
    let linker = linker()?;
    let target_directory = cache::directory()?.join("ebpf-target");
    // Nothing of where this checkout, the cache or cargo's home are may show in the object.
    let cargo_home = env::var_os("CARGO_HOME").map(PathBuf::from).or_else(|| Some(env::home_dir()?.join(".cargo"))).context("no home")?;
    let remap = |from: &Path, to: &str| format!("--remap-path-prefix={}={to}", from.display());
    let flags = [
        "-Cdebuginfo=2".into(),
        "-Clink-arg=--btf".into(),
        "-Clinker=bpf-linker".into(),
        remap(&crate_root(), "/agent-ebpf"),
        remap(&target_directory, "/target"),
        remap(&cargo_home, "/cargo"),
    ];
    let path = env::join_paths([linker.clone()].into_iter().chain(env::split_paths(&env::var_os("PATH").unwrap_or_default())))?;
    let mut cargo = command(CARGO);
    cargo
        .args(["build", "--quiet", "--locked", "--release", "--target", TARGET])
        .current_dir(crate_root())
        .env("PATH", path)
        .env("RUSTC", RUSTC)
        .env("RUSTC_BOOTSTRAP", "aya_ebpf")
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"))
        .env("CARGO_TARGET_DIR", &target_directory)
        .env_remove("RUSTUP_TOOLCHAIN")
        .env_remove("RUSTFLAGS");
    run(&mut cargo)?;
    // BTF stays; DWARF has done its work, and would be three quarters of the object.
    let object = target_directory.join(TARGET).join("release/agent-ebpf.o");
    let linked = target_directory.join(TARGET).join("release/agent-ebpf");
    run(command("/usr/lib/llvm-22/bin/llvm-objcopy").arg("--strip-debug").arg(&linked).arg(&object))?;
    let toolchain = BTreeMap::from([
        ("rustc".into(), output(command(RUSTC).arg("--version"))?.trim().to_owned()),
        ("bpf-linker".into(), LINKER_VERSION.into()),
        (
            "llvm".into(),
            output(command("/usr/lib/llvm-22/bin/llvm-objcopy").arg("--version"))?
                .lines()
                .find(|l| l.contains("version"))
                .unwrap_or_default()
                .trim()
                .to_owned(),
        ),
    ]);
    Ok((object, Provenance { inputs: inputs::digests(&crate_root())?, toolchain }))
}

/// The folder of the linker, built once.
fn linker() -> Result<PathBuf> {
    let place = cache::kept(&format!("bpf-linker-{LINKER_VERSION}-{LLVM}"), |dir| {
        let mut install = crate::process::cargo();
        install
            .args(["install", "bpf-linker", "--quiet", "--version", LINKER_VERSION, "--no-default-features", "--features", LLVM, "--root"])
            .arg(dir)
            .env("LLVM_PREFIX", format!("/usr/lib/{LLVM}"))
            .env_remove("CARGO_TARGET_DIR");
        run(&mut install)
    })?;
    Ok(place.join("bin"))
}
