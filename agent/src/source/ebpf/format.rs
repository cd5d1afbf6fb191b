//! Reads the `format` files of tracepoints (`Documentation/trace/events.rst`): where each field of a record is on the running kernel.

use agent_ebpf::string;

/// One field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Field {
    name: String,
    offset: u32,
    size: u32,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A plain number.
    Number,
    /// `TYPE NAME[N]`.
    Array,
    /// `__data_loc TYPE[] NAME`.
    DataLoc,
    /// `__rel_loc TYPE[] NAME` (5.18): counted from the field's own end; no tracepoint of ours uses it.
    RelLoc,
    /// `const char *NAME`.
    Pointer,
}

/// A record's layout.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Format(Vec<Field>);

/// Why a program cannot be used on this kernel.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum FormatError {
    #[error("its record has no field {0}")]
    Missing(&'static str),
    #[error("field {0} has a shape that is not known")]
    Strange(&'static str),
}

impl Format {
    /// Takes a format file apart. Lines that describe no field are passed over.
    pub(super) fn parse(text: &str) -> Self {
        Self(text.lines().filter_map(field).collect())
    }

    /// Offset of a number of this many bytes.
    pub(super) fn number(&self, name: &'static str, size: u32) -> Result<u32, FormatError> {
        let field = self.find(name)?;
        let fits = field.kind == Kind::Number && field.size == size;
        if fits { Ok(field.offset) } else { Err(FormatError::Strange(name)) }
    }

    /// Offset and kind of a string.
    pub(super) fn string(&self, name: &'static str) -> Result<[u32; 2], FormatError> {
        let field = self.find(name)?;
        match field.kind {
            Kind::Array => Ok([field.offset, string::INLINE]),
            Kind::DataLoc if field.size == 4 => Ok([field.offset, string::DATA_LOC]),
            Kind::Pointer if field.size == 8 => Ok([field.offset, string::POINTER]),
            Kind::DataLoc | Kind::Pointer | Kind::RelLoc | Kind::Number => Err(FormatError::Strange(name)),
        }
    }

    /// The same for a string that older kernels do not have.
    pub(super) fn string_if_there(&self, name: &'static str) -> Result<[u32; 2], FormatError> {
        match self.string(name) {
            Err(FormatError::Missing(_)) => Ok([0, string::ABSENT]),
            other => other,
        }
    }

    fn find(&self, name: &'static str) -> Result<&Field, FormatError> {
        self.0.iter().find(|field| field.name == name).ok_or(FormatError::Missing(name))
    }
}

/// `field:TYPE NAME[N]; offset:O; size:S; signed:G;`
fn field(line: &str) -> Option<Field> {
    let mut parts = line.trim().strip_prefix("field:")?.split(';').map(str::trim);
    let declaration = parts.next()?;
    let offset = parts.next()?.strip_prefix("offset:")?.parse().ok()?;
    let size = parts.next()?.strip_prefix("size:")?.parse().ok()?;
    let (r#type, name) = declaration.rsplit_once([' ', '\t', '*'])?;
    let (name, is_array) = match name.split_once('[') {
        Some((name, _)) => (name, true),
        None => (name, false),
    };
    let kind = if r#type.starts_with("__data_loc") {
        Kind::DataLoc
    } else if r#type.starts_with("__rel_loc") {
        Kind::RelLoc
    } else if is_array {
        Kind::Array
    } else if declaration.contains('*') {
        Kind::Pointer
    } else {
        Kind::Number
    };
    Some(Field { name: name.to_owned(), offset, size, kind })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HANG_6_1: &str = "name: sched_process_hang\nID: 300\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\tfield:char comm[16];\toffset:8;\tsize:16;\tsigned:1;\n\
        \tfield:pid_t pid;\toffset:24;\tsize:4;\tsigned:1;\n\nprint fmt: \"comm=%s pid=%d\", REC->comm, REC->pid\n";
    const HANG_6_18: &str = "name: sched_process_hang\nformat:\n\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\
        \n\tfield:__data_loc char[] comm;\toffset:8;\tsize:4;\tsigned:0;\n\tfield:pid_t pid;\toffset:12;\tsize:4;\tsigned:1;\n";
    const EXT4_ERROR: &str = "\tfield:dev_t dev;\toffset:8;\tsize:4;\tsigned:0;\n\
        \tfield:const char * function;\toffset:16;\tsize:8;\tsigned:0;\n\tfield:unsigned line;\toffset:24;\tsize:4;\tsigned:0;\n";

    #[test]
    fn fields_are_where_each_kernel_puts_them() {
        let old = Format::parse(HANG_6_1);
        assert_eq!((old.number("pid", 4), old.string("comm")), (Ok(24), Ok([8, string::INLINE])));
        let new = Format::parse(HANG_6_18);
        assert_eq!((new.number("pid", 4), new.string("comm")), (Ok(12), Ok([8, string::DATA_LOC])));
        let ext4 = Format::parse(EXT4_ERROR);
        assert_eq!((ext4.number("dev", 4), ext4.string("function")), (Ok(8), Ok([16, string::POINTER])));
    }

    #[test]
    fn a_field_that_is_missing_or_strange_is_never_guessed() {
        let format = Format::parse(HANG_6_1);
        assert_eq!(format.number("tgid", 4), Err(FormatError::Missing("tgid")));
        assert_eq!(format.number("pid", 8), Err(FormatError::Strange("pid")));
        assert_eq!(format.number("comm", 4), Err(FormatError::Strange("comm")));
        assert_eq!(format.string("pid"), Err(FormatError::Strange("pid")));
        assert_eq!(format.string_if_there("file"), Ok([0, string::ABSENT]));
        assert_eq!(
            Format::parse("\tfield:__rel_loc char[] comm;\toffset:8;\tsize:4;\tsigned:0;\n").string("comm"),
            Err(FormatError::Strange("comm"))
        );
    }

    proptest! {
        #[test]
        fn any_text_is_a_format(text in "(\tfield:[ -~]{0,30};\toffset:[0-9]{0,12};\tsize:[0-9]{0,12};\n|[ -~\n]{0,30}){0,10}") {
            let format = Format::parse(&text);
            let _ = (format.number("pid", 4), format.string("comm"));
        }
    }
}
