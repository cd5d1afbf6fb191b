//! The first look at a raw record, made for every line that the kernel writes: nearly all of them end here.

use std::sync::LazyLock;

use super::rule;

/// Beginnings of the lines that mean something, by their first byte.
static STARTS: LazyLock<Vec<Vec<&'static [u8]>>> = LazyLock::new(|| {
    let mut by_first = vec![Vec::new(); 256];
    for start in rule::starts() {
        if let Some((first, rest)) = start.as_bytes().split_first()
            && let Some(bucket) = by_first.get_mut(usize::from(*first))
        {
            bucket.push(rest);
        }
    }
    by_first
});

/// Whether a raw record could be recognised at all: cheap, and never wrong in the direction of no. Lets the reader skip the rest of the work
/// for nearly every record.
#[must_use]
pub fn could_matter(record: &[u8]) -> bool {
    let Some(end) = record.iter().position(|b| *b == b';') else { return false };
    let Some((first, rest)) = record.get(end + 1..).and_then(<[u8]>::split_first) else { return false };
    // A line that begins with an escape is none of ours, since no beginning in the table holds a byte that the kernel escapes.
    STARTS.get(usize::from(*first)).is_some_and(|starts| starts.iter().any(|s| rest.starts_with(s)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::log::{LogRecord, recognise};

    #[test]
    fn no_beginning_holds_a_byte_that_the_kernel_escapes() {
        for start in rule::starts() {
            assert!(start.bytes().all(|b| (b' '..127).contains(&b) && b != b'\\'), "{start:?}");
        }
    }

    fn beginning() -> impl Strategy<Value = Vec<u8>> {
        let starts: Vec<_> = rule::starts().map(str::as_bytes).map(<[u8]>::to_vec).collect();
        prop_oneof![prop::sample::select(starts), any::<Vec<u8>>()]
    }

    proptest! {
        #[test]
        fn nothing_that_is_recognised_is_glanced_over(start in beginning(), rest: Vec<u8>) {
            let mut record = b"6,1,1,-;".to_vec();
            record.extend(start);
            record.extend(rest);
            if let Ok(parsed) = LogRecord::parse(&record) {
                prop_assert!(could_matter(&record) || recognise(&parsed.text).is_none());
            }
        }
    }
}
