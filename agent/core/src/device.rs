//! Block devices as the kernel names and numbers them.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Major and minor number of a block device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DeviceNumber {
    /// The driver.
    pub major: u32,
    /// The device of that driver.
    pub minor: u32,
}

impl DeviceNumber {
    /// From the kernel's own `dev_t` as tracepoints carry it: major in the upper 12 bits, minor in the lower 20
    /// (`include/linux/kdev_t.h`; not what `stat` returns).
    #[must_use]
    pub const fn from_kernel(dev: u32) -> Self {
        Self { major: dev >> 20, minor: dev & 0xf_ffff }
    }
}

impl fmt::Display for DeviceNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

/// A device as a signal knew it: a log line gives its name, a tracepoint its number. The source fills in the other where sysfs knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Device {
    /// The kernel's name: `sda1`, `dm-0`, `loop3`.
    pub name: Option<String>,
    /// Major and minor.
    pub number: Option<DeviceNumber>,
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.name, self.number) {
            (Some(name), _) => f.write_str(name),
            (None, Some(number)) => number.fmt(f),
            (None, None) => f.write_str("an unnamed device"),
        }
    }
}
