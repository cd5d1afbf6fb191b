//! Names and numbers of block devices, each found from the other in sysfs.

use std::{
    fs,
    path::{Path, PathBuf},
};

use agent_core::{Device, DeviceNumber};

use super::{Host, read_file};

impl Host {
    /// Fills in the name from the number or the number from the name, if sysfs knows the device now.
    pub fn complete(&self, device: &mut Device) {
        match (&device.name, device.number) {
            (Some(name), None) => device.number = self.device_number(name),
            (None, Some(number)) => device.name = self.device_name(number),
            (Some(_), Some(_)) | (None, None) => {}
        }
    }

    /// Number of the block device that the kernel calls so.
    #[must_use]
    pub fn device_number(&self, name: &str) -> Option<DeviceNumber> {
        let name = name.replace('/', "!");
        if name.is_empty() || name.starts_with('.') || name.contains('\0') {
            return None;
        }
        let text = String::from_utf8(read_file(&self.sys("class/block").join(name).join("dev")).ok()?).ok()?;
        let (major, minor) = text.trim().split_once(':')?;
        Some(DeviceNumber { major: major.parse().ok()?, minor: minor.parse().ok()? })
    }

    /// The kernel's name of a block device.
    #[must_use]
    pub fn device_name(&self, number: DeviceNumber) -> Option<String> {
        let target = fs::read_link(self.sys("dev/block").join(number.to_string())).ok()?;
        // sysfs has ! where the kernel's name has / (cciss/c0d0).
        Some(target.file_name()?.to_string_lossy().replace('!', "/"))
    }

    fn sys(&self, path: &str) -> PathBuf {
        self.path(Path::new("/sys")).join(path)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::host::tests::FakeHost;

    fn host() -> FakeHost {
        let fake = FakeHost::new().with("sys/class/block/dm-0/dev", "253:0\n").with("sys/class/block/cciss!c0d0/dev", "104:0\n");
        fs::create_dir_all(fake.0.path().join("sys/dev/block")).unwrap();
        symlink("../../devices/virtual/block/dm-0", fake.0.path().join("sys/dev/block/253:0")).unwrap();
        symlink("../../devices/pci0/cciss!c0d0", fake.0.path().join("sys/dev/block/104:0")).unwrap();
        fake
    }

    #[test]
    fn name_and_number_find_each_other() {
        let (fake, number) = (host(), |major, minor| DeviceNumber { major, minor });
        for (name, number) in [("dm-0", number(253, 0)), ("cciss/c0d0", number(104, 0))] {
            assert_eq!(fake.host().device_number(name), Some(number));
            assert_eq!(fake.host().device_name(number).as_deref(), Some(name));
        }
        let mut named = Device { name: Some("dm-0".into()), number: None };
        fake.host().complete(&mut named);
        assert_eq!(named.number, Some(number(253, 0)));
        let mut numbered = Device { name: None, number: Some(number(253, 0)) };
        fake.host().complete(&mut numbered);
        assert_eq!(numbered.name.as_deref(), Some("dm-0"));
    }

    #[test]
    fn a_name_that_is_no_device_finds_nothing() {
        let fake = host().with("sys/class/secret/dev", "1:1");
        for name in ["", ".", "..", "../secret", "nothing", "dm-0\0", "0:45"] {
            assert_eq!(fake.host().device_number(name), None, "{name:?}");
        }
        assert_eq!(fake.host().device_name(DeviceNumber { major: 0, minor: 45 }), None);
    }
}
