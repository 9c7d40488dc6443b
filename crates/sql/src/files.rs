//! The table `files`: what is known of every file, directory and link of the volume.

use std::any::Any;
use std::borrow::Cow;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{
    ArrayRef, Int64Builder, RecordBatch, StringBuilder, TimestampMicrosecondBuilder,
};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::{Result, exec_datafusion_err};
use datafusion::execution::TaskContext;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use nearside_fsrlib::{Ask, Failure, FileEntry, Operation, Record, Target};

use crate::Options;
use crate::batch::batch_of;
use crate::pattern::{Beginning, beginning};
use crate::scan::{Asked, Emit, Scan, Work, left_out, wanted, with_drive};
use crate::way::Drives;

/// Rows of a batch.
const BATCH: usize = 8192;

/// Columns, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Path,
    Name,
    Kind,
    Size,
    Allocated,
    Mode,
    Uid,
    Gid,
    Links,
    Inode,
    Modified,
    Changed,
    Accessed,
    Born,
    Target,
}

impl Column {
    const ALL: [Column; 15] = [
        Column::Path,
        Column::Name,
        Column::Kind,
        Column::Size,
        Column::Allocated,
        Column::Mode,
        Column::Uid,
        Column::Gid,
        Column::Links,
        Column::Inode,
        Column::Modified,
        Column::Changed,
        Column::Accessed,
        Column::Born,
        Column::Target,
    ];

    fn field(self) -> Field {
        let instant = DataType::Timestamp(TimeUnit::Microsecond, None);
        let (name, kind, null) = match self {
            Column::Path => ("path", DataType::Utf8, false),
            Column::Name => ("name", DataType::Utf8, false),
            Column::Kind => ("kind", DataType::Utf8, true),
            Column::Size => ("size", DataType::Int64, true),
            Column::Allocated => ("allocated", DataType::Int64, true),
            Column::Mode => ("mode", DataType::Int64, true),
            Column::Uid => ("uid", DataType::Int64, true),
            Column::Gid => ("gid", DataType::Int64, true),
            Column::Links => ("links", DataType::Int64, true),
            Column::Inode => ("inode", DataType::Int64, true),
            Column::Modified => ("modified", instant, true),
            Column::Changed => ("changed", instant, true),
            Column::Accessed => ("accessed", instant, true),
            Column::Born => ("born", instant, true),
            Column::Target => ("target", DataType::Utf8, true),
        };
        Field::new(name, kind, null)
    }

    /// Whether a directory alone says it.
    fn is_of_a_name(self) -> bool {
        matches!(self, Column::Path | Column::Name | Column::Kind)
    }
}

/// The table.
#[derive(Debug)]
pub(crate) struct Files {
    pub drives: Drives,
    pub options: Options,
    schema: SchemaRef,
}

impl Files {
    pub fn new(drives: Drives, options: Options) -> Files {
        let own = Schema::new(Column::ALL.into_iter().map(Column::field).collect::<Vec<_>>());
        let schema = with_drive(&drives, &own);
        Files { drives, options, schema }
    }
}

#[async_trait]
impl TableProvider for Files {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        let each = filters.iter().map(|filter| match beginning("path", filter) {
            Some(_) if self.options.push_down => TableProviderFilterPushDown::Inexact,
            _ => TableProviderFilterPushDown::Unsupported,
        });
        Ok(each.collect())
    }

    async fn scan(
        &self,
        _state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let (columns, drive_at) = wanted(projection, &self.schema, Column::ALL.len());
        let mut below = Below::default();
        filters.iter().filter_map(|filter| beginning("path", filter)).for_each(|one| below.narrow(&one));
        let limit = limit.map(|rows| rows as u64).filter(|_| self.options.push_down);
        let walk = Walk::new(below, &columns, limit)?;
        Ok(Arc::new(Scan::new(self.drives.clone(), Arc::new(walk), drive_at)))
    }
}

/// A part of the tree in which all rows are.
#[derive(Clone, Debug)]
pub(crate) struct Below {
    pub root: String,
    /// How far below the root; 0: nothing.
    pub depth: u32,
}

impl Default for Below {
    fn default() -> Below {
        Below { root: "/".to_owned(), depth: u32::MAX }
    }
}

impl Below {
    /// Only where paths begin so, too.
    fn narrow(&mut self, beginning: &Beginning) {
        let (root, depth) = match beginning {
            Beginning::Whole(path) => (path.as_str(), 0),
            // The last name is not whole.
            Beginning::Of(path) => match path.rsplit_once('/') {
                Some((root, _)) if !root.is_empty() => (root, u32::MAX),
                _ => return,
            },
        };
        if root.len() > self.root.len() || depth == 0 {
            *self = Below { root: root.to_owned(), depth };
        }
    }

    /// Whether paths of a walk can be so: they have no empty names, nor `.` and `..`.
    fn is_walked(&self) -> bool {
        let mut names = self.root.split('/');
        let absolute = names.next() == Some("");
        absolute && (self.root == "/" || names.all(|name| !matches!(name, "" | "." | "..")))
    }

    /// The directories above the root.
    fn above(&self) -> impl Iterator<Item = &str> {
        let ends = self.root.match_indices('/').map(|(at, _)| at).filter(|at| *at > 0);
        let top = (self.root != "/").then_some("/");
        top.into_iter().chain(ends.map(|end| &self.root[..end]))
    }
}

/// A walk over a tree.
#[derive(Debug)]
pub(crate) struct Walk {
    pub below: Below,
    columns: Vec<Column>,
    schema: SchemaRef,
    pub limit: Option<u64>,
}

/// What there is above the root of a walk.
enum Above {
    /// Directories that a walk goes through.
    Walked,
    /// Something that a walk does not get past: a link, which it does not follow, or what it may not list.
    Ends,
}

impl Walk {
    /// With these columns of the table's.
    pub fn new(below: Below, columns: &[usize], limit: Option<u64>) -> Result<Walk> {
        let found = columns.iter().map(|column| Column::ALL.get(*column).copied());
        let columns: Option<Vec<Column>> = found.collect();
        let columns = columns.ok_or_else(|| exec_datafusion_err!("no such column of files"))?;
        let schema = Arc::new(Schema::new(columns.iter().map(|column| column.field()).collect::<Vec<_>>()));
        Ok(Walk { below, columns, schema, limit })
    }

    /// Which of the table's columns.
    #[cfg(feature = "codec")]
    pub fn columns(&self) -> impl Iterator<Item = usize> {
        self.columns.iter().map(|column| *column as usize)
    }

    /// Whether a walk from the volume's root would come to this one's. What it would say on its way is said.
    fn above(&self, drive: &mut Asked<'_>) -> Result<Above> {
        let ask = |path: &str, operation| Ask { target: Target::Path(path.into()), operation, follow: false };
        let root = (self.below.depth > 0).then_some(self.below.root.as_str());
        for path in self.below.above().chain(root) {
            let mut directory = false;
            let refusal = drive.ask(&ask(path, Operation::Stat), |record| {
                if let Record::Entry(entry) = record {
                    directory = kind_of(entry.mode) == Some("directory");
                }
                Ok(ControlFlow::Continue(()))
            })?;
            // Of a directory that may be read and not searched a walk has the names, and goes no further.
            if matches!(refusal, Some(Failure::PermissionDenied)) {
                return Ok(Above::Ends);
            }
            let refusal = match refusal {
                // What is below the root of this walk is its own matter.
                None if Some(path) == root => None,
                None if !directory => return Ok(Above::Ends),
                None => drive.ask(&ask(path, Operation::Names), |_| Ok(ControlFlow::Break(())))?,
                refusal => refusal,
            };
            match refusal {
                None => {}
                Some(Failure::NotFound | Failure::NotADirectory | Failure::NameTooLong) => {
                    return Ok(Above::Ends);
                }
                Some(failure) => {
                    left_out(drive.way, path.as_bytes(), &failure)?;
                    return Ok(Above::Ends);
                }
            }
        }
        Ok(Above::Walked)
    }

    /// The walk. What was refused.
    fn walk(&self, drive: &mut Asked<'_>, below: &Below, emit: Emit<'_>) -> Result<Option<Failure>> {
        let names = self.columns.iter().all(|column| column.is_of_a_name());
        let ask = Ask {
            target: Target::Tree {
                root: below.root.clone().into(),
                include: Vec::new(),
                exclude: Vec::new(),
                max_depth: below.depth,
            },
            operation: if names { Operation::Names } else { Operation::List },
            follow: false,
        };
        let way = drive.way.clone();
        let mut rows = Building::new(&self.columns);
        let (mut left, mut ended) = (self.limit.unwrap_or(u64::MAX), false);
        let refusal = drive.ask(&ask, |record| {
            match record {
                Record::Entry(entry) => rows.push(&entry),
                Record::Name { path, kind } => rows.push(&FileEntry::of_name(path, kind)),
                Record::Failed { path, failure } => {
                    left_out(&way, &path, &failure)?;
                    return Ok(ControlFlow::Continue(()));
                }
                _ => return Ok(ControlFlow::Continue(())),
            }
            left -= 1;
            if rows.rows == BATCH {
                ended = emit(rows.finish(&self.schema)?)?.is_break();
            }
            Ok(if left == 0 || ended { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        if rows.rows > 0 && !ended {
            let _no_more = emit(rows.finish(&self.schema)?)?;
        }
        Ok(refusal)
    }
}

impl Work for Walk {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Below { root, depth } = &self.below;
        let names: Vec<_> = self.schema.fields().iter().map(|field| field.name().as_str()).collect();
        let what = if *depth == 0 { "file" } else { "files below" };
        write!(f, "{what} {root}, columns=[{}]", names.join(", "))?;
        self.limit.map_or(Ok(()), |limit| write!(f, ", limit={limit}"))
    }

    fn run(&self, drive: &mut Asked<'_>, _context: &Arc<TaskContext>, emit: Emit<'_>) -> Result<()> {
        if !self.below.is_walked() || self.limit == Some(0) {
            return Ok(());
        }
        if let Above::Ends = self.above(drive)? {
            return Ok(());
        }
        let refusal = match (self.walk(drive, &self.below, emit)?, self.below.root.rsplit_once('/')) {
            // Its directory may be read and not searched: there it has a name.
            (Some(Failure::PermissionDenied), Some((parent, _))) if self.below.depth == 0 => {
                let parent = if parent.is_empty() { "/" } else { parent };
                self.walk(drive, &Below { root: parent.to_owned(), depth: 1 }, emit)?
            }
            (refusal, _) => refusal,
        };
        match refusal {
            // Nothing is there that a condition speaks of.
            None | Some(Failure::NotFound | Failure::NotADirectory | Failure::NameTooLong) => {}
            Some(failure) => left_out(drive.way, self.below.root.as_bytes(), &failure)?,
        }
        Ok(())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// What a file is; `None`: nothing is said of it.
fn kind_of(mode: u16) -> Option<&'static str> {
    Some(match mode >> 12 {
        0o10 => "file",
        0o4 => "directory",
        0o12 => "link",
        0o6 => "block device",
        0o2 => "character device",
        0o1 => "pipe",
        0o14 => "socket",
        _ => return None,
    })
}

/// A column in the making.
enum Builder {
    Text(StringBuilder),
    Number(Int64Builder),
    Time(TimestampMicrosecondBuilder),
}

/// A batch in the making.
struct Building {
    columns: Vec<(Column, Builder)>,
    rows: usize,
}

/// Microseconds since 1970, without a part of one.
fn micros((seconds, nanoseconds): (i64, u32)) -> Option<i64> {
    seconds.checked_mul(1_000_000)?.checked_add(i64::from(nanoseconds / 1000))
}

impl Building {
    fn new(columns: &[Column]) -> Building {
        let builder = |column: &Column| match column.field().data_type() {
            DataType::Utf8 => Builder::Text(StringBuilder::new()),
            DataType::Int64 => Builder::Number(Int64Builder::new()),
            _ => Builder::Time(TimestampMicrosecondBuilder::new()),
        };
        Building { columns: columns.iter().map(|column| (*column, builder(column))).collect(), rows: 0 }
    }

    fn push(&mut self, entry: &FileEntry<'_>) {
        self.rows += 1;
        let path = String::from_utf8_lossy(&entry.path);
        // Of a name in a directory that may not be searched there is no more to be had.
        let known = !entry.is_name_alone();
        let whole = |number: u64| Some(i64::try_from(number).unwrap_or(i64::MAX));
        for (column, builder) in &mut self.columns {
            match builder {
                Builder::Text(texts) => texts.append_option(match column {
                    Column::Path => Some(path.clone()),
                    Column::Name => Some(Cow::Borrowed(match path.rsplit_once('/') {
                        Some((_, name)) if !name.is_empty() => name,
                        _ => &path,
                    })),
                    Column::Kind => kind_of(entry.mode).map(Cow::Borrowed),
                    _ => entry.link.as_ref().map(|link| String::from_utf8_lossy(link)),
                }),
                Builder::Number(numbers) => numbers.append_option(match column {
                    _ if !known => None,
                    Column::Size => whole(entry.size),
                    Column::Allocated => whole(entry.sectors.saturating_mul(512)),
                    Column::Mode => whole(u64::from(entry.mode & 0o7777)),
                    Column::Uid => whole(entry.uid.into()),
                    Column::Gid => whole(entry.gid.into()),
                    Column::Links => whole(entry.links.into()),
                    _ => whole(entry.ino),
                }),
                Builder::Time(times) => times.append_option(match column {
                    _ if !known => None,
                    Column::Accessed => micros(entry.times[0]),
                    Column::Modified => micros(entry.times[1]),
                    Column::Changed => micros(entry.times[2]),
                    _ => entry.birth.and_then(micros),
                }),
            }
        }
    }

    fn finish(&mut self, schema: &SchemaRef) -> Result<RecordBatch> {
        let rows = std::mem::take(&mut self.rows);
        let columns = self.columns.iter_mut().map(|(_, builder)| match builder {
            Builder::Text(texts) => Arc::new(texts.finish()) as ArrayRef,
            Builder::Number(numbers) => Arc::new(numbers.finish()),
            Builder::Time(times) => Arc::new(times.finish()),
        });
        batch_of(schema, columns.collect(), rows)
    }
}
