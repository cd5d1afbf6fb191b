//! The grammar of a `/dev/kmsg` record (`Documentation/ABI/testing/dev-kmsg`): `PRI,SEQ,TIME,FLAGS[,more];TEXT\n`, then dictionary lines
//! that begin with a blank.

use std::borrow::Cow;

/// One record, its dictionary split off and its escapes undone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRecord<'a> {
    /// 0 is the kernel; anything else was written by a process.
    pub facility: u32,
    /// 0 (emergency) to 7 (debug).
    pub level: u8,
    /// Grows by one with each record of a boot.
    pub sequence: u64,
    /// Microseconds of the scheduler's clock since boot; stands still in suspend.
    pub stamp_us: u64,
    /// The text, without dictionary; any bytes.
    pub text: Cow<'a, [u8]>,
    /// `SUBSYSTEM=...`, `DEVICE=...` lines, as they came.
    pub dictionary: &'a [u8],
}

/// Why a record could not be taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a kernel log record: {0}")]
pub struct MalformedRecord(pub &'static str);

impl<'a> LogRecord<'a> {
    /// Takes apart what one `read` of `/dev/kmsg` returned.
    ///
    /// # Errors
    /// If it has not the shape `PRI,SEQ,TIME,FLAGS;TEXT`.
    pub fn parse(record: &'a [u8]) -> Result<Self, MalformedRecord> {
        let (header, body) = split_once(record, b';').ok_or(MalformedRecord("no semicolon"))?;
        let mut fields = header.splitn(4, |b| *b == b',');
        let priority = number(fields.next()).ok_or(MalformedRecord("priority is no number"))?;
        let sequence = number(fields.next()).ok_or(MalformedRecord("sequence is no number"))?;
        let stamp_us = number(fields.next()).ok_or(MalformedRecord("time is no number"))?;
        let priority = u32::try_from(priority).map_err(|_| MalformedRecord("priority out of range"))?;
        let (text, dictionary) = split_once(body, b'\n').unwrap_or((body, b""));
        Ok(Self { facility: priority >> 3, level: (priority & 7) as u8, sequence, stamp_us, text: unescape(text), dictionary })
    }

    /// The sequence number alone: all that a reader needs of most records.
    #[must_use]
    pub fn sequence_of(record: &[u8]) -> Option<u64> {
        let (_, rest) = split_once(record.get(..64).unwrap_or(record), b',')?;
        number(rest.split(|b| *b == b',').next())
    }
}

fn split_once(bytes: &[u8], at: u8) -> Option<(&[u8], &[u8])> {
    let i = bytes.iter().position(|b| *b == at)?;
    Some((bytes.get(..i)?, bytes.get(i + 1..)?))
}

/// A decimal number of at most 64 bits, and nothing else.
fn number(digits: Option<&[u8]>) -> Option<u64> {
    let digits = digits.filter(|d| !d.is_empty())?;
    digits.iter().try_fold(0u64, |n, b| {
        let digit = b.wrapping_sub(b'0');
        if digit > 9 { None } else { n.checked_mul(10)?.checked_add(u64::from(digit)) }
    })
}

/// Undoes the kernel's `\xNN`. What only looks like an escape stays as it is.
fn unescape(text: &[u8]) -> Cow<'_, [u8]> {
    if !text.contains(&b'\\') {
        return Cow::Borrowed(text);
    }
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, after)) = rest.split_first() {
        if let [b'\\', b'x', high, low, ..] = rest
            && let (Some(high), Some(low)) = (hex(*high), hex(*low))
        {
            plain.push(high << 4 | low);
            rest = rest.get(4..).unwrap_or_default();
        } else {
            plain.push(*first);
            rest = after;
        }
    }
    Cow::Owned(plain)
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|d| u8::try_from(d).ok())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_record_is_header_text_and_dictionary() {
        let record = LogRecord::parse(b"6,339,5140900,-;usb 1-1: new device\n SUBSYSTEM=usb\n DEVICE=c189:0\n").unwrap();
        assert_eq!(
            record,
            LogRecord {
                facility: 0,
                level: 6,
                sequence: 339,
                stamp_us: 5_140_900,
                text: Cow::Borrowed(b"usb 1-1: new device"),
                dictionary: b" SUBSYSTEM=usb\n DEVICE=c189:0\n",
            }
        );
    }

    #[test]
    fn what_a_process_wrote_has_another_facility() {
        assert_eq!(LogRecord::parse(b"12,1,2,-;text\n").unwrap().facility, 1);
        assert_eq!(LogRecord::parse(b"30,1,2,-;systemd[1]: text\n").unwrap().facility, 3);
    }

    #[test]
    fn unknown_header_fields_are_ignored() {
        let record = LogRecord::parse(b"4,9,10,c,caller=T123,new=1;text").unwrap();
        assert_eq!((record.sequence, record.stamp_us, &*record.text), (9, 10, &b"text"[..]));
    }

    #[test]
    fn escapes_are_undone_once() {
        let record = LogRecord::parse(b"3,1,1,-;rcu: \\x09(t=1)\\x0a \\\\ \\x5cx41 \\xzz \\x\n").unwrap();
        assert_eq!(&*record.text, b"rcu: \t(t=1)\n \\\\ \\x41 \\xzz \\x");
    }

    #[test]
    fn a_broken_record_says_what_is_missing() {
        let cases: [(&[u8], &str); 5] = [
            (b"", "no semicolon"),
            (b"6,1,1,- no semicolon", "no semicolon"),
            (b"x,1,1,-;t", "priority is no number"),
            (b"6,18446744073709551616,1,-;t", "sequence is no number"),
            (b"6,1;t", "time is no number"),
        ];
        for (record, why) in cases {
            assert_eq!(LogRecord::parse(record), Err(MalformedRecord(why)));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_record_or_an_error(bytes: Vec<u8>) {
            let _ = LogRecord::parse(&bytes);
        }

        #[test]
        fn the_short_way_to_the_sequence_agrees_with_the_long(priority in 0..200u32, sequence: u64, stamp: u64, text: Vec<u8>) {
            let mut bytes = format!("{priority},{sequence},{stamp},-;").into_bytes();
            bytes.extend(text);
            prop_assert_eq!(LogRecord::sequence_of(&bytes), Some(sequence));
            prop_assert_eq!(LogRecord::parse(&bytes).unwrap().sequence, sequence);
        }
    }
}
