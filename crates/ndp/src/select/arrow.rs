//! Batches of columns as Arrow's stream format (Apache Arrow Columnar Format 1.5, "Serialization and
//! Interprocess Communication"), written and read: a schema, a record batch, the end. The metadata are
//! FlatBuffers of `Message.fbs` and `Schema.fbs`, of which so few tables are needed that they stand here;
//! the arrow crates' own encoder takes minutes to compile.
//!
//! A stream that comes from elsewhere is looked through in bounds: no bytes make reading it panic, or take
//! more memory than they are.

use nearside_near_data::ColumnType;

use super::value::Cell;

/// MetadataVersion.V5
const V5: i16 = 4;
const SCHEMA: u8 = 1;
const RECORD_BATCH: u8 = 3;
const CONTINUES: [u8; 4] = [0xff; 4];
/// Most rows of a batch.
pub(super) const MAX_ROWS: usize = 65_536;

/// A column, in the making.
#[derive(Debug)]
pub(super) struct Column {
    kind: ColumnType,
    /// A bit for each row that is not null.
    valid: Vec<u8>,
    nulls: usize,
    /// Numbers, bits or the texts' bytes.
    data: Vec<u8>,
    /// Where texts end.
    ends: Vec<u8>,
    rows: usize,
}

fn set_bit(bits: &mut Vec<u8>, at: usize, is: bool) {
    if at.is_multiple_of(8) {
        bits.push(0);
    }
    if let Some(last) = bits.last_mut() {
        *last |= u8::from(is) << (at % 8);
    }
}

impl Column {
    pub(super) fn new(kind: ColumnType) -> Column {
        Column { kind, valid: Vec::new(), nulls: 0, data: Vec::new(), ends: Vec::new(), rows: 0 }
    }

    pub(super) fn clear(&mut self) {
        self.valid.clear();
        self.data.clear();
        self.ends.clear();
        (self.nulls, self.rows) = (0, 0);
    }

    /// Most bytes that a value takes in a stream.
    pub(super) fn weight(&self, cell: Cell) -> usize {
        match cell {
            Cell::Text(from, to) => 5 + (to - from) as usize,
            _ => 9,
        }
    }

    /// Adds a value; what is of another type is null.
    pub(super) fn push(&mut self, cell: Cell, text: &[u8]) {
        if self.kind == ColumnType::Utf8 && self.ends.is_empty() {
            self.ends.extend_from_slice(&[0; 4]);
        }
        let valid = match (self.kind, cell) {
            (ColumnType::Bool, Cell::Bool(is)) => {
                set_bit(&mut self.data, self.rows, is);
                true
            }
            (ColumnType::Int64, Cell::Int(n)) | (ColumnType::Timestamp, Cell::Time(n)) => {
                self.data.extend_from_slice(&n.to_le_bytes());
                true
            }
            (ColumnType::Float64, Cell::Float(n)) => {
                self.data.extend_from_slice(&n.to_le_bytes());
                true
            }
            (ColumnType::Date, Cell::Date(n)) => {
                self.data.extend_from_slice(&n.to_le_bytes());
                true
            }
            (ColumnType::Utf8, Cell::Text(from, to)) => {
                self.data.extend_from_slice(text.get(from as usize..to as usize).unwrap_or_default());
                true
            }
            (kind, _) => {
                match kind {
                    ColumnType::Bool => set_bit(&mut self.data, self.rows, false),
                    ColumnType::Utf8 => {}
                    ColumnType::Date => self.data.extend_from_slice(&[0; 4]),
                    _ => self.data.extend_from_slice(&[0; 8]),
                }
                false
            }
        };
        if self.kind == ColumnType::Utf8 {
            self.ends.extend_from_slice(&(self.data.len() as u32).to_le_bytes());
        }
        set_bit(&mut self.valid, self.rows, valid);
        self.nulls += usize::from(!valid);
        self.rows += 1;
    }

    /// Its buffers, as they follow each other.
    fn buffers(&self) -> impl Iterator<Item = &[u8]> {
        const NO_ENDS: &[u8] = &[0; 4];
        let valid: &[u8] = if self.nulls == 0 { &[] } else { &self.valid };
        let ends: &[u8] = if self.ends.is_empty() { NO_ENDS } else { &self.ends };
        let ends = (self.kind == ColumnType::Utf8).then_some(ends);
        [Some(valid), ends, Some(&self.data)].into_iter().flatten()
    }
}

/// A field of a FlatBuffers table.
enum Field {
    None,
    U8(u8),
    I16(i16),
    I32(i32),
    I64(i64),
    /// Of what comes later.
    Offset,
}

/// Writes a FlatBuffer from its root on: what is referred to follows what refers to it.
struct Flat {
    out: Vec<u8>,
}

impl Flat {
    fn new() -> Flat {
        Flat { out: vec![0; 4] }
    }

    fn align(&mut self, to: usize, of: usize) {
        while !(self.out.len() + of).is_multiple_of(to) {
            self.out.push(0);
        }
    }

    /// Has the offset at `place` say where the next byte is.
    fn refer(&mut self, place: usize) {
        let offset = (self.out.len() - place) as u32;
        if let Some(bytes) = self.out.get_mut(place..place + 4) {
            bytes.copy_from_slice(&offset.to_le_bytes());
        }
    }

    /// A table to which `from` refers. The places of its offsets.
    fn table(&mut self, from: usize, fields: &[Field]) -> Vec<usize> {
        let (mut at, mut places) = (4usize, Vec::new());
        // The largest first; the table begins four bytes before a multiple of eight.
        let mut starts = vec![0u16; fields.len()];
        for size in [8, 4, 2, 1] {
            for (field, start) in fields.iter().zip(&mut starts) {
                let len = match field {
                    Field::None => 0,
                    Field::U8(_) => 1,
                    Field::I16(_) => 2,
                    Field::I32(_) | Field::Offset => 4,
                    Field::I64(_) => 8,
                };
                if len == size {
                    *start = at as u16;
                    at += size;
                }
            }
        }
        let heads = 4 + 2 * fields.len();
        self.align(8, heads + 4);
        let vtable = self.out.len();
        self.out.extend_from_slice(&(heads as u16).to_le_bytes());
        self.out.extend_from_slice(&(at as u16).to_le_bytes());
        starts.iter().for_each(|start| self.out.extend_from_slice(&start.to_le_bytes()));
        self.refer(from);
        let table = self.out.len();
        self.out.extend_from_slice(&((table - vtable) as i32).to_le_bytes());
        self.out.resize(table + at, 0);
        for (field, start) in fields.iter().zip(&starts) {
            let place = table + usize::from(*start);
            let mut put = |bytes: &[u8]| {
                if let Some(to) = self.out.get_mut(place..place + bytes.len()) {
                    to.copy_from_slice(bytes);
                }
            };
            match field {
                Field::None => {}
                Field::U8(n) => put(&n.to_le_bytes()),
                Field::I16(n) => put(&n.to_le_bytes()),
                Field::I32(n) => put(&n.to_le_bytes()),
                Field::I64(n) => put(&n.to_le_bytes()),
                Field::Offset => places.push(place),
            }
        }
        places
    }

    fn text(&mut self, from: usize, text: &str) {
        self.align(4, 0);
        self.refer(from);
        self.out.extend_from_slice(&(text.len() as u32).to_le_bytes());
        self.out.extend_from_slice(text.as_bytes());
        self.out.push(0);
    }

    /// A vector of so many offsets; their places.
    fn offsets(&mut self, from: usize, count: usize) -> Vec<usize> {
        self.align(4, 0);
        self.refer(from);
        self.out.extend_from_slice(&(count as u32).to_le_bytes());
        let first = self.out.len();
        self.out.resize(first + 4 * count, 0);
        (0..count).map(|nth| first + 4 * nth).collect()
    }

    /// A vector of pairs of numbers.
    fn pairs(&mut self, from: usize, pairs: &[(usize, usize)]) {
        self.align(8, 4);
        self.refer(from);
        self.out.extend_from_slice(&(pairs.len() as u32).to_le_bytes());
        for n in pairs.iter().flat_map(|(a, b)| [*a as u64, *b as u64]) {
            self.out.extend_from_slice(&n.to_le_bytes());
        }
    }

    /// A message's root; the place of its header.
    fn message(header: u8, body: usize) -> (Flat, usize) {
        let mut flat = Flat::new();
        let fields = [Field::I16(V5), Field::U8(header), Field::Offset, Field::I64(body as i64)];
        let places = flat.table(0, &fields);
        (flat, places.first().copied().unwrap_or_default())
    }

    /// Adds it as a message's metadata.
    fn end(self, out: &mut Vec<u8>) {
        let len = self.out.len().next_multiple_of(8);
        out.extend_from_slice(&CONTINUES);
        out.extend_from_slice(&(len as u32).to_le_bytes());
        out.extend_from_slice(&self.out);
        out.resize(out.len() + len - self.out.len(), 0);
    }
}

/// The union `Type` of a field: its number and its table.
fn type_of(kind: ColumnType) -> (u8, Vec<Field>) {
    match kind {
        ColumnType::Int64 => (2, vec![Field::I32(64), Field::U8(1)]),
        ColumnType::Float64 => (3, vec![Field::I16(2)]),
        ColumnType::Utf8 => (5, Vec::new()),
        ColumnType::Bool => (6, Vec::new()),
        ColumnType::Date => (8, vec![Field::I16(0)]),
        ColumnType::Timestamp => (10, vec![Field::I16(2), Field::None]),
    }
}

/// The schema's message: what a stream begins with.
pub(super) fn schema<'n>(columns: impl ExactSizeIterator<Item = (&'n str, ColumnType)>, out: &mut Vec<u8>) {
    let (mut flat, header) = Flat::message(SCHEMA, 0);
    let fields = flat.table(header, &[Field::I16(0), Field::Offset]);
    let places = flat.offsets(fields.first().copied().unwrap_or_default(), columns.len());
    for (place, (name, kind)) in places.into_iter().zip(columns) {
        let (number, of) = type_of(kind);
        let field =
            [Field::Offset, Field::U8(1), Field::U8(number), Field::Offset, Field::None, Field::Offset];
        if let [named, typed, children] = flat.table(place, &field)[..] {
            flat.text(named, name);
            flat.table(typed, &of);
            flat.offsets(children, 0);
        }
    }
    flat.end(out);
}

/// A record batch's message, and the end of the stream.
pub(super) fn batch(columns: &[Column], rows: usize, out: &mut Vec<u8>) {
    let (mut nodes, mut buffers, mut body) = (Vec::new(), Vec::new(), 0usize);
    for column in columns {
        nodes.push((rows, column.nulls));
        for buffer in column.buffers() {
            buffers.push((body, buffer.len()));
            body += buffer.len().next_multiple_of(8);
        }
    }
    let (mut flat, header) = Flat::message(RECORD_BATCH, body);
    let fields = flat.table(header, &[Field::I64(rows as i64), Field::Offset, Field::Offset]);
    if let [of_nodes, of_buffers] = fields[..] {
        flat.pairs(of_nodes, &nodes);
        flat.pairs(of_buffers, &buffers);
    }
    flat.end(out);
    for buffer in columns.iter().flat_map(Column::buffers) {
        out.extend_from_slice(buffer);
        out.resize(out.len().next_multiple_of(8), 0);
    }
    out.extend_from_slice(&CONTINUES);
    out.extend_from_slice(&[0; 4]);
}

/// Most bytes that a batch's message has beside its values.
pub(super) fn overhead(columns: usize) -> usize {
    // A node, three buffers with what aligns them, and the bits of a byte that is not full.
    192 + columns * (16 + 3 * 24 + 16)
}
