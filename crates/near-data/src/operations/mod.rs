//! The operations: their names, their numbers, and what is known of each without doing it ([`KINDS`]).
//! Options of those that have some stand in a file of their own.

mod checksum;
mod program;
mod rules;
mod search;
mod select;
mod table;

pub use checksum::Digest;
pub use program::{Code, Language, MAX_PARAMETERS, ProgramOptions};
pub use rules::{RuleParameters, Variable};
pub use search::{Answer, SearchOptions};
pub use select::{
    Aggregate, ColumnType, Comparison, Function, Literal, MAX_AGGREGATES, MAX_COLUMN_NAME, MAX_FIELDS,
    MAX_REGEX_NEST, MAX_REGEX_TEXT, MAX_REGEXES, MAX_ROW_GROUPS, MAX_TERM_TEXT, MAX_TERMS, ParseError,
    RowFormat, SelectOptions, Term,
};
pub use table::{Element, GatherOptions, MAX_COLUMNS, MAX_NEAREST, Measure, NearestOptions, Pooling, Table};

/// What to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Operation {
    /// Nothing: measures the round trip. With a path target: locates the file and checks permission, no more.
    Nop,
    /// What the volume is: one `Record::Volume`.
    Info,
    /// Finds lines.
    Search(SearchOptions),
    /// Counts lines, words and bytes, as wc does.
    Count,
    /// A checksum over the bytes.
    Checksum(Digest),
    /// The bytes of a range, as `Record::Data`.
    Read {
        /// First byte.
        offset: u64,
        /// Bytes; cut at the end of the file.
        len: u64,
    },
    /// Entries of a directory (Path) or a whole tree (Tree), as `Record::Entry`.
    List,
    /// Metadata of each target, as `Record::Entry`.
    Stat,
    /// Where the file's bytes lie: `Record::Extent`s, for `--locate host` done by asking the drive, and for
    /// tools.
    Map,
    /// Names and types in a directory (Path) or a whole tree (Tree), as `Record::Name`: what directories
    /// say of them, so that no inode is read but those of directories that are gone into. A directory that
    /// may not be gone into, since the one above may not be searched, is a `Record::Failed` as well.
    Names,
    /// Rows of a table, as `Record::Row`s. What a cursor's `found` counts are bags.
    Gather(GatherOptions),
    /// The rows of a table that are nearest to a query, as `Record::Near`s, the nearest first.
    Nearest(NearestOptions),
    /// Extended attributes of each target, as `Record::Attribute`s behind its `Record::File`: those that the
    /// kernel would let the user read. In a tree, of all entries. A cursor's `found` counts attributes that
    /// were answered whole, its `offset` bytes of the next.
    Attributes,
    /// Rows of a text table, or what is made of their groups, as `Record::Batch`es. What a cursor's `found`
    /// counts are rows that were answered.
    Select(alloc::boxed::Box<SelectOptions>),
    /// What a program emits of a file, as `Record::Emitted`s. What a cursor's `found` counts are records that
    /// were answered since the program could have begun at its `offset`, and `within` bytes of the next.
    Program(alloc::boxed::Box<ProgramOptions>),
}

/// What is known of an operation without doing it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// What it is called in reports.
    pub name: &'static str,
    /// It answers about a file in two records or less, as a list of paths demands.
    pub brief: bool,
    /// It computes over a file's bytes, so that a list of the file's blocks is all it needs.
    pub computes: bool,
    /// Which options it takes, as bits; what a bit means stands with the operation. Log page D5h says them.
    pub options: u32,
}

impl Kind {
    /// About a file or a volume itself.
    const ABOUT: Kind = Kind { name: "", brief: false, computes: false, options: 0 };
    /// Over bytes.
    const OVER: Kind = Kind { name: "", brief: false, computes: true, options: 0 };
}

/// The operations' numbers on the wire: their places in [`KINDS`].
pub(crate) mod number {
    pub const NOP: u16 = 0;
    pub const INFO: u16 = 1;
    pub const SEARCH: u16 = 2;
    pub const COUNT: u16 = 3;
    pub const CHECKSUM: u16 = 4;
    pub const READ: u16 = 5;
    pub const LIST: u16 = 6;
    pub const STAT: u16 = 7;
    pub const MAP: u16 = 8;
    pub const NAMES: u16 = 9;
    pub const GATHER: u16 = 10;
    pub const NEAREST: u16 = 11;
    pub const ATTRIBUTES: u16 = 12;
    pub const SELECT: u16 = 13;
    pub const PROGRAM: u16 = 14;
}

/// All operations, by their numbers.
pub const KINDS: [Kind; 15] = [
    Kind { name: "nop", brief: true, ..Kind::ABOUT },
    Kind { name: "info", ..Kind::ABOUT },
    Kind { name: "search", options: SearchOptions::BITS, ..Kind::OVER },
    Kind { name: "count", brief: true, ..Kind::OVER },
    Kind { name: "checksum", brief: true, options: Digest::BITS, ..Kind::OVER },
    Kind { name: "read", ..Kind::OVER },
    Kind { name: "list", ..Kind::ABOUT },
    Kind { name: "stat", brief: true, ..Kind::ABOUT },
    Kind { name: "map", ..Kind::ABOUT },
    Kind { name: "names", ..Kind::ABOUT },
    Kind { name: "gather", options: GatherOptions::BITS, ..Kind::OVER },
    Kind { name: "nearest", options: NearestOptions::BITS, ..Kind::OVER },
    Kind { name: "attributes", ..Kind::ABOUT },
    Kind { name: "select", options: SelectOptions::BITS, ..Kind::OVER },
    Kind { name: "program", options: ProgramOptions::BITS, ..Kind::OVER },
];

impl Operation {
    /// Its number on the wire: its place in [`KINDS`].
    #[must_use]
    pub const fn number(&self) -> u16 {
        match self {
            Operation::Nop => number::NOP,
            Operation::Info => number::INFO,
            Operation::Search(_) => number::SEARCH,
            Operation::Count => number::COUNT,
            Operation::Checksum(_) => number::CHECKSUM,
            Operation::Read { .. } => number::READ,
            Operation::List => number::LIST,
            Operation::Stat => number::STAT,
            Operation::Map => number::MAP,
            Operation::Names => number::NAMES,
            Operation::Gather(_) => number::GATHER,
            Operation::Nearest(_) => number::NEAREST,
            Operation::Attributes => number::ATTRIBUTES,
            Operation::Select(_) => number::SELECT,
            Operation::Program(_) => number::PROGRAM,
        }
    }

    /// What is known of it.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        KINDS[self.number() as usize]
    }
}
