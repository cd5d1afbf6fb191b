//! A disk without a filesystem, most of which cannot be read.

use std::{fs, process::Command};

use anyhow::Result;

use crate::{process::output, undo::Undo};

/// What it seems to have.
const SIZE: u64 = 16 << 20;

/// What it really has.
const SOUND: u64 = 4096;

/// A loop device whose file was cut short behind its back. It is gone when this is dropped.
#[derive(Debug)]
pub struct Disk {
    device: String,
    _undo: Undo,
}

impl Disk {
    /// Makes one.
    ///
    /// # Errors
    /// If that cannot be done, with what the program said.
    pub fn new() -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("nodeward-test-").tempdir()?.keep();
        let image = fs::File::create(directory.join("image"))?;
        image.set_len(SIZE)?;
        // Without direct I/O the loop device reads zeros where its file has ended.
        let mut make = Command::new("losetup");
        make.args(["--find", "--show", "--direct-io=on"]).arg(directory.join("image"));
        let device = output(&mut make)?.trim().to_owned();
        let remove = "if losetup \"$0\"; then losetup --detach \"$0\" || exit 1; fi; rm -rf --one-file-system \"$1\"";
        let undo = Undo::by(remove, &[device.as_ref(), directory.as_os_str()])?;
        image.set_len(SOUND)?;
        Ok(Self { device, _undo: undo })
    }

    /// The kernel's name of it: `loop0`.
    #[must_use]
    pub fn name(&self) -> &str {
        self.device.trim_start_matches("/dev/")
    }

    /// Tries so many blocks where it is broken; each is an error of its own, and none of them is ours.
    ///
    /// # Errors
    /// If `dd` gives up.
    pub fn try_to_read(&self, blocks: u32) -> Result<()> {
        let (from, count) = (format!("if={}", self.device), format!("count={blocks}"));
        output(Command::new("dd").args([&from, &count, "of=/dev/null", "bs=4096", "skip=100", "iflag=direct", "conv=noerror"])).map(drop)
    }
}
