//! Which file a system call (`/proc/PID/syscall`) is about, as its arguments say.

/// The argument that names a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileArgument {
    /// An open descriptor.
    Descriptor(u32),
    /// A path at this address of the process, from a directory.
    Path {
        /// Where relative paths begin.
        from: From,
        /// Address of the string.
        address: u64,
    },
}

/// Where a relative path begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum From {
    /// In the working directory.
    WorkingDirectory,
    /// In an open directory.
    Descriptor(u32),
}

/// Which arguments of a call name a file: their places.
#[derive(Clone, Copy)]
enum Shape {
    Descriptor(usize),
    Path(usize),
    PathAt(usize, usize),
}

/// The kernel prints `NUMBER ARGUMENT*6 STACK PC` with all but the number in hexadecimal, `running`, or a number of -1 outside a call.
pub(super) fn file_argument(syscall: &[u8]) -> Option<FileArgument> {
    let text = std::str::from_utf8(syscall).ok()?;
    let mut words = text.split_whitespace();
    let number: i64 = words.next()?.parse().ok()?;
    let hex = |word: &str| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok();
    let values: Vec<u64> = words.map_while(hex).collect();
    let [arguments @ .., stack, _pc] = &values[..] else { return None };
    // 32-bit programs number their calls differently, and the file does not say whose numbers these are; but their stack lies low.
    if arguments.len() != 6 || *stack <= u64::from(u32::MAX) {
        return None;
    }
    let argument = |i: usize| arguments.get(i).copied();
    // The kernel looks at the lower half of a descriptor only; negative is none.
    let descriptor = |i: usize| u32::try_from(argument(i)? & 0xffff_ffff).ok().filter(|fd| *fd <= i32::MAX as u32);
    match shape(number)? {
        Shape::Descriptor(i) => Some(FileArgument::Descriptor(descriptor(i)?)),
        Shape::Path(i) => path(From::WorkingDirectory, argument(i)?),
        Shape::PathAt(directory, i) if is_working_directory(argument(directory)?) => path(From::WorkingDirectory, argument(i)?),
        // Without a path the directory is the file itself (futimens).
        Shape::PathAt(file, i) if argument(i) == Some(0) => Some(FileArgument::Descriptor(descriptor(file)?)),
        Shape::PathAt(directory, i) => path(From::Descriptor(descriptor(directory)?), argument(i)?),
    }
}

fn path(from: From, address: u64) -> Option<FileArgument> {
    (address != 0).then_some(FileArgument::Path { from, address })
}

/// `AT_FDCWD` is -100, of which some programs set the lower half only.
fn is_working_directory(argument: u64) -> bool {
    argument & 0xffff_ffff == 0xffff_ff9c
}

/// Calls that can wait for a filesystem. Of two files the first is taken: both lie on one filesystem, but for copies.
fn shape(number: i64) -> Option<Shape> {
    use libc as n;
    Some(match number {
        n::SYS_read | n::SYS_write | n::SYS_pread64 | n::SYS_pwrite64 | n::SYS_readv | n::SYS_writev | n::SYS_preadv | n::SYS_pwritev => {
            Shape::Descriptor(0)
        }
        n::SYS_preadv2 | n::SYS_pwritev2 | n::SYS_fsync | n::SYS_fdatasync | n::SYS_sync_file_range | n::SYS_syncfs => Shape::Descriptor(0),
        n::SYS_ftruncate | n::SYS_fallocate | n::SYS_fchmod | n::SYS_fchown | n::SYS_flock | n::SYS_fchdir => Shape::Descriptor(0),
        n::SYS_close | n::SYS_lseek | n::SYS_getdents64 | n::SYS_fstat | n::SYS_fstatfs | n::SYS_ioctl | n::SYS_fcntl => {
            Shape::Descriptor(0)
        }
        n::SYS_fsetxattr | n::SYS_fgetxattr | n::SYS_flistxattr | n::SYS_fremovexattr | n::SYS_fadvise64 => Shape::Descriptor(0),
        n::SYS_sendfile | n::SYS_readahead => Shape::Descriptor(0),
        n::SYS_copy_file_range | n::SYS_splice => Shape::Descriptor(2),
        n::SYS_openat | n::SYS_openat2 | n::SYS_mkdirat | n::SYS_mknodat | n::SYS_unlinkat | n::SYS_newfstatat | n::SYS_statx => {
            Shape::PathAt(0, 1)
        }
        n::SYS_linkat | n::SYS_renameat2 | n::SYS_fchmodat | n::SYS_fchownat | n::SYS_faccessat | n::SYS_faccessat2 | n::SYS_readlinkat => {
            Shape::PathAt(0, 1)
        }
        n::SYS_utimensat | n::SYS_execveat | n::SYS_name_to_handle_at => Shape::PathAt(0, 1),
        n::SYS_symlinkat => Shape::PathAt(1, 2),
        n::SYS_truncate | n::SYS_statfs | n::SYS_chdir | n::SYS_chroot | n::SYS_execve | n::SYS_umount2 => Shape::Path(0),
        n::SYS_setxattr | n::SYS_lsetxattr | n::SYS_getxattr | n::SYS_lgetxattr | n::SYS_listxattr | n::SYS_removexattr => Shape::Path(0),
        _ => return shape_of_old(number),
    })
}

/// Calls that only older architectures have.
#[cfg(target_arch = "x86_64")]
fn shape_of_old(number: i64) -> Option<Shape> {
    use libc as n;
    Some(match number {
        n::SYS_open | n::SYS_creat | n::SYS_mkdir | n::SYS_rmdir | n::SYS_unlink | n::SYS_rename | n::SYS_link | n::SYS_mknod => {
            Shape::Path(0)
        }
        n::SYS_chmod | n::SYS_chown | n::SYS_lchown | n::SYS_stat | n::SYS_lstat | n::SYS_access | n::SYS_readlink => Shape::Path(0),
        n::SYS_utime | n::SYS_utimes => Shape::Path(0),
        n::SYS_symlink => Shape::Path(1),
        n::SYS_renameat => Shape::PathAt(0, 1),
        n::SYS_getdents => Shape::Descriptor(0),
        _ => return None,
    })
}

#[cfg(not(target_arch = "x86_64"))]
fn shape_of_old(_number: i64) -> Option<Shape> {
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn told(number: i64, arguments: [u64; 3]) -> Option<FileArgument> {
        let [a, b, c] = arguments;
        file_argument(format!("{number} {a:#x} {b:#x} {c:#x} 0x0 0x0 0x0 0x7ffe241f8cf8 0x7f22cdba72ad\n").as_bytes())
    }

    #[test]
    fn a_descriptor_is_the_file() {
        assert_eq!(told(libc::SYS_write, [3, 0x7f00, 5]), Some(FileArgument::Descriptor(3)));
        assert_eq!(told(libc::SYS_fsync, [7, 0, 0]), Some(FileArgument::Descriptor(7)));
        assert_eq!(told(libc::SYS_write, [u64::MAX, 0x7f00, 5]), None);
    }

    #[test]
    fn a_path_begins_where_the_call_says() {
        let path = |from| Some(FileArgument::Path { from, address: 0x7f00 });
        assert_eq!(told(libc::SYS_openat, [0xffff_ff9c, 0x7f00, 0]), path(From::WorkingDirectory));
        assert_eq!(told(libc::SYS_unlinkat, [0xffff_ffff_ffff_ff9c, 0x7f00, 0]), path(From::WorkingDirectory));
        assert_eq!(told(libc::SYS_mkdirat, [5, 0x7f00, 0]), path(From::Descriptor(5)));
        assert_eq!(told(libc::SYS_truncate, [0x7f00, 0, 0]), path(From::WorkingDirectory));
        assert_eq!(told(libc::SYS_openat, [0xffff_ff9c, 0, 0]), None);
        assert_eq!(told(libc::SYS_utimensat, [5, 0, 0]), Some(FileArgument::Descriptor(5)));
    }

    #[test]
    fn a_call_without_a_file_names_none() {
        assert_eq!(told(libc::SYS_nanosleep, [1, 2, 3]), None);
        assert_eq!(file_argument(b"running\n"), None);
        assert_eq!(file_argument(b"-1 0x7ffe241f8cf8 0x7f22cdba72ad\n"), None);
        assert_eq!(file_argument(b""), None);
    }

    #[test]
    fn calls_of_a_32_bit_program_are_not_read_as_ours() {
        assert_eq!(file_argument(b"3 0x3 0x1 0x1 0x0 0x0 0x0 0xffc01234 0xf7f01234\n"), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_call_or_none(bytes: Vec<u8>) {
            let _ = file_argument(&bytes);
        }

        #[test]
        fn any_numbers_are_a_call_or_none(number: i64, arguments: [u64; 8]) {
            let [a, b, c, d, e, f, g, h] = arguments;
            let _ = file_argument(format!("{number} {a:#x} {b:#x} {c:#x} {d:#x} {e:#x} {f:#x} {g:#x} {h:#x}\n").as_bytes());
        }
    }
}
