//! The grammar of `/proc/PID/mountinfo` (`Documentation/filesystems/proc.rst` section 3.5).

use agent_core::{
    DeviceNumber,
    mount::{Mount, SuperState},
};

use super::fstab::unescape;

/// One line, with what the core has no use for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountLine {
    /// The mount.
    pub mount: Mount,
    /// The superblock's options as they came, escapes and all.
    pub super_options: String,
}

impl MountLine {
    /// Value of a `key=value` option of the superblock, escapes undone.
    #[must_use]
    pub fn super_option(&self, key: &str) -> Option<String> {
        // Commas in overlayfs' paths come as \054 or \,: neither can be mistaken for the next option's beginning by what we ask for.
        self.super_options.split(',').find_map(|option| option.strip_prefix(key)?.strip_prefix('=')).map(unescape)
    }
}

/// Takes a mount table apart; gives its lines and how many were not of the right shape.
#[must_use]
pub fn parse(table: &[u8]) -> (Vec<MountLine>, u64) {
    let mut malformed = 0;
    let lines = table.split(|b| *b == b'\n').filter(|line| !line.is_empty());
    let parsed = lines.filter_map(|line| {
        let parsed = parse_line(&String::from_utf8_lossy(line));
        malformed += u64::from(parsed.is_none());
        parsed
    });
    (parsed.collect(), malformed)
}

fn parse_line(line: &str) -> Option<MountLine> {
    let mut fields = line.split(' ');
    let id = fields.next()?.parse().ok()?;
    let parent = fields.next()?.parse().ok()?;
    let (major, minor) = fields.next()?.split_once(':')?;
    let device = DeviceNumber { major: major.parse().ok()?, minor: minor.parse().ok()? };
    let root = unescape(fields.next()?);
    let mount_point = unescape(fields.next()?);
    let read_only = fields.next()?.split(',').any(|option| option == "ro");
    // Any number of optional fields (shared:1 master:2 ...), then a dash.
    fields.by_ref().find(|field| *field == "-")?;
    let fs_type = unescape(fields.next()?);
    let source = unescape(fields.next()?);
    let super_options = fields.next()?.to_owned();
    let super_state = super_state(&super_options);
    Some(MountLine { mount: Mount { id, parent, device, root, mount_point, read_only, fs_type, source, super_state }, super_options })
}

/// The worst that the options say.
fn super_state(options: &str) -> SuperState {
    let says = |word| options.split(',').any(|option| option == word);
    if says("shutdown") {
        SuperState::Shutdown
    } else if says("emergency_ro") {
        SuperState::Emergency
    } else if says("ro") {
        SuperState::ReadOnly
    } else {
        SuperState::ReadWrite
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ROOT: &str = "27 1 254:0 / / rw,relatime shared:1 master:2 - ext4 /dev/vda rw,discard,resuid=65534";

    #[test]
    fn a_line_says_what_is_mounted_where_and_how() {
        let (lines, malformed) = parse(ROOT.as_bytes());
        let expected = Mount {
            id: 27,
            parent: 1,
            device: DeviceNumber { major: 254, minor: 0 },
            root: "/".into(),
            mount_point: "/".into(),
            read_only: false,
            fs_type: "ext4".into(),
            source: "/dev/vda".into(),
            super_state: SuperState::ReadWrite,
        };
        assert_eq!((lines.len(), malformed), (1, 0));
        assert_eq!(lines[0].mount, expected);
    }

    #[test]
    fn the_mount_and_its_superblock_can_be_read_only_each_for_itself() {
        let state = |mount: &str, superblock: &str| {
            let (lines, _) = parse(format!("1 0 8:1 / /m {mount} - ext4 /dev/sda1 {superblock}\n").as_bytes());
            (lines[0].mount.read_only, lines[0].mount.super_state)
        };
        assert_eq!(state("ro,relatime", "rw"), (true, SuperState::ReadWrite));
        assert_eq!(state("rw", "ro,errors=remount-ro"), (false, SuperState::ReadOnly));
        assert_eq!(state("rw", "rw,emergency_ro"), (false, SuperState::Emergency));
        assert_eq!(state("rw", "rw,shutdown,emergency_ro"), (false, SuperState::Shutdown));
        assert_eq!(state("rw,errors=ro", "rw,norecovery=ro"), (false, SuperState::ReadWrite));
    }

    #[test]
    fn blanks_and_newlines_in_names_are_names() {
        let (lines, _) = parse(b"5 1 0:40 /a\\134b /mnt/two\\040words\\012- rw - overlay over\\040lay rw,upperdir=/u\\040p,workdir=/w\n");
        assert_eq!(lines[0].mount.root, "/a\\b");
        assert_eq!(lines[0].mount.mount_point, "/mnt/two words\n-");
        assert_eq!(lines[0].mount.source, "over lay");
        assert_eq!(lines[0].super_option("upperdir").as_deref(), Some("/u p"));
        assert_eq!(lines[0].super_option("upper"), None);
    }

    #[test]
    fn a_broken_line_is_counted_and_costs_no_other() {
        let (lines, malformed) = parse(format!("{ROOT}\nnonsense\n1 2 3:4 / / rw ext4 /dev/x rw\n{ROOT}\n").as_bytes());
        assert_eq!((lines.len(), malformed), (2, 2));
    }

    proptest! {
        #[test]
        fn any_bytes_are_lines_or_counted(bytes: Vec<u8>) {
            let (lines, malformed) = parse(&bytes);
            let given = bytes.split(|b| *b == b'\n').filter(|line| !line.is_empty()).count();
            prop_assert_eq!(lines.len() + malformed as usize, given);
        }

        #[test]
        fn what_the_kernel_escapes_comes_back(path in "[ -~\t\n]{1,40}") {
            let escaped: String = path
                .bytes()
                .map(|b| if matches!(b, b' ' | b'\t' | b'\n' | b'\\' | b'#') { format!("\\{b:03o}") } else { char::from(b).into() })
                .collect();
            let (lines, _) = parse(format!("1 0 8:1 / /{escaped} rw - ext4 s rw").as_bytes());
            prop_assert_eq!(&lines[0].mount.mount_point, &format!("/{path}"));
        }
    }
}
