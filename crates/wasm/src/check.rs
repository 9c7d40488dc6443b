//! What a program is refused for before it is compiled, with the function that it is about.

use std::collections::BTreeMap;

use nearside_ndp::program::MAX_MEMORY;
use wasmparser::{
    BinaryReaderError, ExternalKind, KnownCustom, Name, Operator, Parser, Payload, TypeRef, ValType,
};

/// Instructions from one place to the next at which a program is interrupted: the beginning of a function,
/// of a loop, or behind a call of another of its functions. A few microseconds; where each of them misses
/// all caches, tenths of a millisecond.
pub(crate) const MOST_IN_A_ROW: usize = 8_192;
/// Bytes of a function; what compiling takes grows faster than it.
const MOST_BYTES: usize = 32 << 10;
/// Locals of a function; what compiling takes grows with their number.
const MOST_LOCALS: u32 = 1_000;
/// Functions of a program's own.
const MOST_FUNCTIONS: usize = 5_000;
/// Bytes of a page.
const PAGE: u64 = 64 << 10;

/// What is known of a module's functions.
#[derive(Default)]
struct Functions {
    imported: u32,
    /// Longest row of instructions of each.
    rows: Vec<usize>,
    names: BTreeMap<u32, String>,
}

/// Looks at a module.
pub(crate) fn check(code: &[u8]) -> Result<(), String> {
    if !code.starts_with(b"\0asm") {
        return Err("not a WebAssembly module: it does not begin with \"\\0asm\"".to_owned());
    }
    let mut functions = Functions::default();
    let (mut run, mut memory) = (None, false);
    for payload in Parser::new(0).parse_all(code) {
        match payload.map_err(wrong)? {
            Payload::Version { encoding: wasmparser::Encoding::Component, .. } => {
                return Err("a component: what runs is a core module".to_owned());
            }
            Payload::ImportSection(imports) => {
                for import in imports {
                    let import = import.map_err(wrong)?;
                    match import.ty {
                        TypeRef::Func(_) => functions.imported += 1,
                        _ => return Err(format!("it imports {}, which is no function", import.name)),
                    }
                }
            }
            Payload::MemorySection(memories) => {
                for memory in memories {
                    let bytes = memory.map_err(wrong)?.initial.saturating_mul(PAGE);
                    if bytes > MAX_MEMORY as u64 {
                        return Err(format!("it begins with {bytes} bytes of memory: at most {MAX_MEMORY}"));
                    }
                }
            }
            Payload::ExportSection(exports) => {
                for export in exports {
                    let export = export.map_err(wrong)?;
                    match (export.name, export.kind) {
                        ("run", ExternalKind::Func) => run = Some(export.index),
                        ("memory", ExternalKind::Memory) => memory = true,
                        _ => {}
                    }
                }
            }
            Payload::CodeSectionEntry(body) => {
                let nth = functions.rows.len();
                if nth >= MOST_FUNCTIONS {
                    return Err(format!("it has more than {MOST_FUNCTIONS} functions"));
                }
                let bytes = body.range().len();
                if bytes > MOST_BYTES {
                    return Err(format!("function {nth} has {bytes} bytes: at most {MOST_BYTES}"));
                }
                let mut locals = 0u32;
                for local in body.get_locals_reader().map_err(wrong)? {
                    let (count, _): (u32, ValType) = local.map_err(wrong)?;
                    locals = locals.saturating_add(count);
                }
                if locals > MOST_LOCALS {
                    return Err(format!("function {nth} has {locals} locals: at most {MOST_LOCALS}"));
                }
                let operators = body.get_operators_reader().map_err(wrong)?;
                functions.rows.push(longest_row(operators, functions.imported)?);
            }
            Payload::CustomSection(section) => {
                if let KnownCustom::Name(names) = section.as_known() {
                    functions.learn(names);
                }
            }
            _ => {}
        }
    }
    if run.is_none() || !memory {
        return Err("it exports no \"run\" or no \"memory\"".to_owned());
    }
    functions.judge()
}

fn wrong(e: BinaryReaderError) -> String {
    format!("{} (byte {})", e.message(), e.offset())
}

/// The longest row of instructions without a place at which it is interrupted.
fn longest_row(operators: wasmparser::OperatorsReader<'_>, imported: u32) -> Result<usize, String> {
    let (mut longest, mut row) = (0, 0usize);
    for operator in operators {
        row += match operator.map_err(wrong)? {
            // One does as much as its operand says, and counts as one.
            Operator::TableFill { .. } | Operator::TableGrow { .. } => {
                return Err("it fills a table, or has one grow".to_owned());
            }
            // Its targets are compiled one by one.
            Operator::BrTable { targets } => targets.len() as usize,
            Operator::Loop { .. } | Operator::CallIndirect { .. } => {
                longest = longest.max(row);
                row = 0;
                1
            }
            Operator::Call { function_index } if function_index >= imported => {
                longest = longest.max(row);
                row = 0;
                1
            }
            _ => 1,
        };
    }
    Ok(longest.max(row))
}

impl Functions {
    /// Takes the names that are there; what is wrong with them is nobody's harm.
    fn learn(&mut self, names: wasmparser::NameSectionReader<'_>) {
        for name in names.into_iter().flatten() {
            let Name::Function(map) = name else { continue };
            for naming in map.into_iter().flatten() {
                self.names.insert(naming.index, naming.name.to_owned());
            }
        }
    }

    fn judge(&self) -> Result<(), String> {
        let Some((nth, row)) = self.rows.iter().enumerate().find(|(_, row)| **row > MOST_IN_A_ROW) else {
            return Ok(());
        };
        let index = u32::try_from(nth).unwrap_or(u32::MAX).saturating_add(self.imported);
        let name = self.names.get(&index).map_or_else(|| format!("number {index}"), Clone::clone);
        Err(format!(
            "function {name} has {row} instructions in a row, without a loop or a call between them, during \
             which it cannot be interrupted: at most {MOST_IN_A_ROW}"
        ))
    }
}
