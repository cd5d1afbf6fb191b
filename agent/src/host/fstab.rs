//! What `/etc/fstab` of the host wants: the only place besides the kernel command line that says a filesystem is read-only by design.

use std::{io, path::Path};

use super::Host;

/// The mount points of `/etc/fstab`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fstab {
    /// All of them.
    pub mount_points: Vec<String>,
    /// Those whose last word on it is `ro`.
    pub read_only: Vec<String>,
}

impl Host {
    /// Reads `/etc/fstab`; a host without one has no entries.
    ///
    /// # Errors
    /// If there is one that cannot be read.
    pub fn fstab(&self) -> io::Result<Fstab> {
        match self.read(Path::new("/etc/fstab")) {
            Ok(bytes) => Ok(parse(&String::from_utf8_lossy(&bytes))),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Fstab::default()),
            Err(e) => Err(e),
        }
    }
}

fn parse(text: &str) -> Fstab {
    let mut fstab = Fstab::default();
    for line in text.lines().filter(|line| !line.trim_start().starts_with('#')) {
        let mut fields = line.split_whitespace();
        let (Some(_what), Some(place), Some(_type)) = (fields.next(), fields.next(), fields.next()) else { continue };
        if !place.starts_with('/') {
            continue; // swap: "none"
        }
        let place = unescape(place);
        let options = fields.next().unwrap_or_default();
        if options.split(',').rfind(|option| matches!(*option, "ro" | "rw")) == Some("ro") {
            fstab.read_only.push(place.clone());
        }
        fstab.mount_points.push(place);
    }
    fstab
}

/// Undoes the octal escapes of fstab and mountinfo (`\040` for a blank). What only looks like an escape stays as it is.
pub(crate) fn unescape(field: &str) -> String {
    if !field.contains('\\') {
        return field.into();
    }
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        if let [b'\\', high @ b'0'..=b'3', middle @ b'0'..=b'7', low @ b'0'..=b'7', after @ ..] = rest {
            plain.push((high - b'0') << 6 | (middle - b'0') << 3 | (low - b'0'));
            rest = after;
        } else {
            plain.push(*first);
            rest = after;
        }
    }
    String::from_utf8_lossy(&plain).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::tests::FakeHost;

    #[test]
    fn fstab_says_which_mount_points_are_meant_to_be_read_only() {
        let text = "# a comment\nUUID=1 / ext4 defaults,ro 0 1\n/dev/sdb1\t/data\\040two xfs rw,noatime 0 2\n/dev/sdc /opt ext4 ro,rw\n\
                    /dev/sdd none swap sw 0 0\n/dev/sde /bare ext4\nbroken\n\n";
        let fstab = FakeHost::new().with("etc/fstab", text).host().fstab().unwrap();
        assert_eq!(fstab.mount_points, ["/", "/data two", "/opt", "/bare"]);
        assert_eq!(fstab.read_only, ["/"]);
    }

    #[test]
    fn a_host_without_fstab_has_no_entries() {
        assert_eq!(FakeHost::new().host().fstab().unwrap(), Fstab::default());
    }

    #[test]
    fn only_whole_escapes_are_undone() {
        assert_eq!(unescape(r"/a\040b\011c\134d"), "/a b\tc\\d");
        assert_eq!(unescape(r"/a\04 \0 \ \999 \400"), r"/a\04 \0 \ \999 \400");
    }
}
