//! Says where the eBPF object is, and refuses one that was not built from the sources as they are.

use std::{env, error::Error, fs, path::Path, path::PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    let root = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("../agent-ebpf");
    println!("cargo::rerun-if-env-changed=NODEWARD_EBPF_OBJECT");
    // Another object, such as one that was just built from source by `cargo xtask build-ebpf --check`, is taken as it is.
    if let Some(object) = env::var_os("NODEWARD_EBPF_OBJECT") {
        let object = PathBuf::from(object);
        println!("cargo::rerun-if-changed={}", object.display());
        println!("cargo::rustc-env=NODEWARD_EBPF_OBJECT={}", object.display());
        return Ok(());
    }
    let recorded = root.join("prebuilt/inputs.json");
    for watched in ["src", "Cargo.toml", "Cargo.lock", "prebuilt"] {
        println!("cargo::rerun-if-changed={}", root.join(watched).display());
    }
    let recorded = fs::read_to_string(&recorded).map_err(|e| format!("{}: {e}; run cargo xtask build-ebpf", recorded.display()))?;
    for (name, digest) in ebpf_inputs::digests(&root)? {
        if !recorded.contains(&format!("\"{name}\": \"{digest}\"")) {
            return Err(format!("the checked-in eBPF object was not built from {name} as it is: run cargo xtask build-ebpf").into());
        }
    }
    println!("cargo::rustc-env=NODEWARD_EBPF_OBJECT={}", root.join("prebuilt/agent-ebpf.o").display());
    Ok(())
}

#[path = "../agent-ebpf/inputs.rs"]
mod ebpf_inputs;
