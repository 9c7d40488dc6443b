//! Plans as bytes: tables for who plans elsewhere, scans for who asks the drives elsewhere.
//!
//! What a drive is asked is carried as the request that it will be; a drive is named by the words by which
//! another process finds it. What comes from elsewhere is believed no more than a drive's answer is.

use std::fmt::{self, Debug};
use std::sync::Arc;

use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::catalog::TableProvider;
use datafusion::common::{Result, TableReference, exec_datafusion_err, plan_err};
use datafusion::datasource::file_format::FileFormatFactory;
use datafusion::execution::TaskContext;
use datafusion::logical_expr::{Extension, LogicalPlan};
use datafusion::physical_plan::ExecutionPlan;
use datafusion_proto::logical_plan::LogicalExtensionCodec;
use datafusion_proto::physical_plan::{AsExecutionPlan, PhysicalExtensionCodec};
use datafusion_proto::protobuf;
use nearside_fsrlib::{Operation, SearchOptions, Target};
use nearside_near_data::wire::{decode_request, encode_request};
use nearside_near_data::{Credentials, Request};
use prost::Message;

use crate::Options;
use crate::aggregate::{Groups, in_drive};
use crate::files::{Below, Files, Walk};
use crate::lines::{Lines, Search};
use crate::rows::{Chosen, Rows};
use crate::scan::{Scan, Work};
use crate::way::{Drives, Way};

/// Finds a drive of this name by its words ([`Way::words`]); otherwise why there is none.
pub type Finds = dyn Fn(&str, &[String]) -> Result<Arc<dyn Way>, String> + Send + Sync;

/// Tables and scans of drives as bytes, and all else as an engine's own codec has it.
pub struct Codec<C: ?Sized> {
    finds: Arc<Finds>,
    engine: Arc<C>,
    /// What groups are made of is read, in which there are none again.
    within_groups: bool,
}

impl<C: ?Sized> Codec<C> {
    /// Drives are found so; what is not of this crate is the engine's.
    pub fn new(finds: Arc<Finds>, engine: Arc<C>) -> Codec<C> {
        Codec { finds, engine, within_groups: false }
    }
}

impl<C: ?Sized + Debug> Debug for Codec<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Codec").field("engine", &&*self.engine).finish_non_exhaustive()
    }
}

/// A drive, and the words by which it is found.
#[derive(Clone, PartialEq, Message)]
struct Named {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, repeated, tag = "2")]
    words: Vec<String>,
}

/// A request to a drive, and what is made of its answers.
#[derive(Clone, PartialEq, Message)]
struct Asked {
    #[prost(bytes = "vec", tag = "1")]
    request: Vec<u8>,
    #[prost(message, optional, tag = "2")]
    schema: Option<protobuf::Schema>,
    #[prost(uint64, optional, tag = "3")]
    limit: Option<u64>,
    #[prost(bool, tag = "4")]
    groups: bool,
    #[prost(uint32, repeated, tag = "5")]
    columns: Vec<u32>,
}

/// A part of a tree, and columns of its files.
#[derive(Clone, PartialEq, Message)]
struct Tree {
    #[prost(string, tag = "1")]
    root: String,
    #[prost(uint32, tag = "2")]
    depth: u32,
    #[prost(uint32, repeated, tag = "3")]
    columns: Vec<u32>,
    #[prost(uint64, optional, tag = "4")]
    limit: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
struct TableMessage {
    #[prost(message, repeated, tag = "1")]
    drives: Vec<Named>,
    #[prost(bool, tag = "2")]
    push_down: bool,
    #[prost(oneof = "TableOf", tags = "3, 4, 5")]
    of: Option<TableOf>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum TableOf {
    #[prost(bool, tag = "3")]
    Files(bool),
    #[prost(message, tag = "4")]
    Lines(Asked),
    #[prost(message, tag = "5")]
    Rows(Asked),
}

#[derive(Clone, PartialEq, Message)]
struct ScanMessage {
    #[prost(message, repeated, tag = "1")]
    drives: Vec<Named>,
    #[prost(uint32, optional, tag = "2")]
    drive_at: Option<u32>,
    #[prost(oneof = "ScanOf", tags = "3, 4, 5, 6")]
    of: Option<ScanOf>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum ScanOf {
    #[prost(message, tag = "3")]
    Files(Tree),
    #[prost(message, tag = "4")]
    Lines(Asked),
    #[prost(message, tag = "5")]
    Rows(Asked),
    /// DataFusion's own step over a scan of rows, which says all that drives are asked for in its place.
    #[prost(bytes, tag = "6")]
    Groups(Vec<u8>),
}

/// Stands before what is of this crate, and before what is the engine's.
const OWN: u8 = 1;
const ENGINES: u8 = 0;

/// What is known of bytes that are none of this crate's.
fn strange(what: impl fmt::Display) -> datafusion::error::DataFusionError {
    exec_datafusion_err!("no plan over drives: {what}")
}

fn named(drives: &Drives) -> Result<Vec<Named>> {
    let each = drives.iter().map(|way| {
        let name = way.name().to_owned();
        let none = || exec_datafusion_err!("{name}: another process cannot find this drive");
        Ok(Named { words: way.words().ok_or_else(none)?, name })
    });
    each.collect()
}

fn request(target: &Target, operation: Operation) -> Vec<u8> {
    let (partition, credentials) = (0, Credentials::default());
    let target = target.clone();
    encode_request(&Request { partition, credentials, target, operation, follow: true, resume: None })
}

fn places(columns: impl IntoIterator<Item = usize>) -> Result<Vec<u32>> {
    columns.into_iter().map(|at| u32::try_from(at).map_err(strange)).collect()
}

fn columns(places: &[u32]) -> Vec<usize> {
    places.iter().map(|at| *at as usize).collect()
}

impl Asked {
    fn of_rows(chosen: &Chosen) -> Result<Asked> {
        Ok(Asked {
            request: request(&chosen.target, chosen.operation()),
            schema: Some(chosen.schema.as_ref().try_into()?),
            limit: chosen.limit,
            groups: chosen.groups,
            columns: Vec::new(),
        })
    }

    fn of_lines(target: &Target, search: &SearchOptions) -> Asked {
        Asked { request: request(target, Operation::Search(search.clone())), ..Asked::default() }
    }

    fn rows(self) -> Result<Chosen> {
        let schema: SchemaRef = match &self.schema {
            Some(schema) => Arc::new(Schema::try_from(schema)?),
            None => return Err(strange("rows without columns")),
        };
        let (target, select) = match self.request()? {
            Request { target, operation: Operation::Select(select), .. } => (target, *select),
            _ => return Err(strange("rows that are not selected")),
        };
        Ok(Chosen { target, select, limit: self.limit, groups: self.groups, schema })
    }

    fn lines(&self) -> Result<(Target, SearchOptions)> {
        match self.request()? {
            Request { target, operation: Operation::Search(search), .. } => Ok((target, search)),
            _ => Err(strange("lines that are not searched")),
        }
    }

    fn request(&self) -> Result<Request> {
        decode_request(&self.request).map_err(strange)
    }
}

impl ScanOf {
    /// The work of a scan; `codec` is for what it holds of others' steps.
    fn of(work: &dyn Work, codec: &dyn PhysicalExtensionCodec) -> Result<ScanOf> {
        let work = work.as_any();
        if let Some(chosen) = work.downcast_ref::<Chosen>() {
            return Ok(ScanOf::Rows(Asked::of_rows(chosen)?));
        }
        if let Some(search) = work.downcast_ref::<Search>() {
            let asked = Asked::of_lines(&search.target, &search.search);
            let columns = places(search.columns.iter().copied())?;
            return Ok(ScanOf::Lines(Asked { limit: search.limit, columns, ..asked }));
        }
        if let Some(walk) = work.downcast_ref::<Walk>() {
            let Below { root, depth } = walk.below.clone();
            return Ok(ScanOf::Files(Tree {
                root,
                depth,
                columns: places(walk.columns())?,
                limit: walk.limit,
            }));
        }
        let groups = work.downcast_ref::<Groups>().ok_or_else(|| strange("a step of another kind"))?;
        let instead = protobuf::PhysicalPlanNode::try_from_physical_plan(groups.instead.clone(), codec)?;
        let mut bytes = Vec::new();
        instead.try_encode(&mut bytes)?;
        Ok(ScanOf::Groups(bytes))
    }

    fn work(self) -> Result<Arc<dyn Work>> {
        Ok(match self {
            ScanOf::Files(Tree { root, depth, columns: places, limit }) => {
                Arc::new(Walk::new(Below { root, depth }, &columns(&places), limit)?)
            }
            ScanOf::Lines(asked) => {
                let (target, search) = asked.lines()?;
                Arc::new(Search::new(target, search, columns(&asked.columns), asked.limit)?)
            }
            ScanOf::Rows(asked) => Arc::new(asked.rows()?),
            ScanOf::Groups(_) => return Err(strange("groups of nothing")),
        })
    }
}

impl<C: ?Sized> Codec<C> {
    fn drives(&self, named: Vec<Named>) -> Result<Drives> {
        if named.is_empty() {
            return Err(strange("no drive"));
        }
        let found = named.iter().map(|one| (self.finds)(&one.name, &one.words));
        let found: Result<Vec<_>, String> = found.collect();
        Ok(found.map_err(|why| exec_datafusion_err!("{why}"))?.into())
    }
}

impl LogicalExtensionCodec for Codec<dyn LogicalExtensionCodec> {
    fn try_decode(&self, buf: &[u8], inputs: &[LogicalPlan], context: &TaskContext) -> Result<Extension> {
        self.engine.try_decode(buf, inputs, context)
    }

    fn try_encode(&self, node: &Extension, buf: &mut Vec<u8>) -> Result<()> {
        self.engine.try_encode(node, buf)
    }

    fn try_decode_table_provider(
        &self,
        buf: &[u8],
        _named: &TableReference,
        _schema: SchemaRef,
        _context: &TaskContext,
    ) -> Result<Arc<dyn TableProvider>> {
        let TableMessage { drives, push_down, of } = TableMessage::decode(buf).map_err(strange)?;
        let drives = self.drives(drives)?;
        let options = Options { push_down, ..Options::default() };
        Ok(match of {
            Some(TableOf::Files(_)) => Arc::new(Files::new(drives, options)),
            Some(TableOf::Lines(asked)) => {
                let (target, search) = asked.lines()?;
                Arc::new(Lines::with(drives, options, target, search))
            }
            Some(TableOf::Rows(asked)) => Arc::new(Rows::with(drives, options, asked.rows()?)),
            None => return Err(strange("a table of another kind")),
        })
    }

    fn try_encode_table_provider(
        &self,
        name: &TableReference,
        table: Arc<dyn TableProvider>,
        buf: &mut Vec<u8>,
    ) -> Result<()> {
        let table = table.as_any();
        let (drives, options, of) = if let Some(files) = table.downcast_ref::<Files>() {
            (&files.drives, files.options, TableOf::Files(true))
        } else if let Some(lines) = table.downcast_ref::<Lines>() {
            (&lines.drives, lines.options, TableOf::Lines(Asked::of_lines(&lines.target, &lines.search)))
        } else if let Some(rows) = table.downcast_ref::<Rows>() {
            (&rows.drives, rows.options, TableOf::Rows(Asked::of_rows(&rows.asked)?))
        } else {
            return plan_err!("{name}: only tables of drives can be asked in a cluster");
        };
        let message = TableMessage { drives: named(drives)?, push_down: options.push_down, of: Some(of) };
        message.encode(buf).map_err(strange)
    }

    fn try_decode_file_format(
        &self,
        buf: &[u8],
        context: &TaskContext,
    ) -> Result<Arc<dyn FileFormatFactory>> {
        self.engine.try_decode_file_format(buf, context)
    }

    fn try_encode_file_format(&self, buf: &mut Vec<u8>, node: Arc<dyn FileFormatFactory>) -> Result<()> {
        self.engine.try_encode_file_format(buf, node)
    }
}

impl PhysicalExtensionCodec for Codec<dyn PhysicalExtensionCodec> {
    fn try_decode(
        &self,
        buf: &[u8],
        inputs: &[Arc<dyn ExecutionPlan>],
        context: &TaskContext,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let bytes = match buf.split_first() {
            Some((&ENGINES, bytes)) => return self.engine.try_decode(bytes, inputs, context),
            Some((&OWN, bytes)) => bytes,
            _ => return Err(strange("a step of another kind")),
        };
        let ScanMessage { drives, drive_at, of } = ScanMessage::decode(bytes).map_err(strange)?;
        let of = of.ok_or_else(|| strange("a scan of nothing"))?;
        if let ScanOf::Groups(bytes) = of {
            if self.within_groups {
                return Err(strange("groups of groups"));
            }
            let (finds, engine) = (self.finds.clone(), self.engine.clone());
            let below: Codec<dyn PhysicalExtensionCodec> = Codec { finds, engine, within_groups: true };
            let instead = protobuf::PhysicalPlanNode::try_decode(&bytes)?;
            let instead = instead.try_into_physical_plan(context, &below)?;
            let scan = in_drive(&instead).ok_or_else(|| strange("groups that no drive makes"))?;
            return Ok(Arc::new(scan));
        }
        let work = of.work()?;
        let drive_at = drive_at.map(|at| at as usize);
        if drive_at.is_some_and(|at| at > work.schema().fields().len()) {
            return Err(strange("a drive's name behind all columns"));
        }
        Ok(Arc::new(Scan::new(self.drives(drives)?, work, drive_at)))
    }

    fn try_encode(&self, node: Arc<dyn ExecutionPlan>, buf: &mut Vec<u8>) -> Result<()> {
        let Some(scan) = node.as_any().downcast_ref::<Scan>() else {
            buf.push(ENGINES);
            return self.engine.try_encode(node, buf);
        };
        buf.push(OWN);
        let of = ScanOf::of(&*scan.work, self)?;
        // Groups name their drives below.
        let drives = if matches!(of, ScanOf::Groups(_)) { Vec::new() } else { named(&scan.drives)? };
        let drive_at = scan.drive_at.map(u32::try_from).transpose().map_err(strange)?;
        ScanMessage { drives, drive_at, of: Some(of) }.encode(buf).map_err(strange)
    }
}
