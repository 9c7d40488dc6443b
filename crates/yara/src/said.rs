//! What matched, as lines of JSON.

use std::collections::VecDeque;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use boreal::scanner::{EvaluatedRule, ScanResult, Scanner};
use boreal::{Metadata, MetadataValue};
use nearside_ndp::program::Emitted;
use serde_json::{Value, json};

/// What is said of a file.
pub(crate) struct Said {
    records: VecDeque<Emitted>,
}

impl Said {
    /// Of each rule that matched a record, and behind it, with `strings`, one of each place where a string of
    /// it did.
    pub(crate) fn of(scanner: &Scanner, result: &ScanResult<'_>, strings: bool) -> Said {
        let mut lines = Vec::new();
        for rule in result.rules.iter().filter(|rule| rule.matched) {
            lines.push(named(scanner, rule));
            for string in rule.matches.iter().filter(|_| strings) {
                lines.extend(string.matches.iter().map(|found| {
                    let mut line = json!({
                        "string": format!("${}", string.name),
                        "offset": found.base + found.offset,
                        "length": found.length,
                        "data": STANDARD.encode(&found.data),
                    });
                    if string.has_xor_modifier {
                        line["xor"] = found.xor_key.into();
                    }
                    line
                }));
            }
        }
        let records = (0..).zip(lines).map(|(nth, line)| Emitted {
            bytes: line.to_string().into_bytes(),
            restart: 0,
            nth,
        });
        Said { records: records.collect() }
    }

    pub(crate) fn next(&self) -> Option<&Emitted> {
        self.records.front()
    }

    pub(crate) fn taken(&mut self) {
        self.records.pop_front();
    }
}

fn named(scanner: &Scanner, rule: &EvaluatedRule<'_>) -> Value {
    let tags: Vec<&str> = rule.tags.iter().map(|&tag| scanner.get_string_symbol(tag)).collect();
    let meta: Vec<Value> =
        rule.metadatas.iter().map(|meta| json!([name(scanner, meta), value(scanner, meta)])).collect();
    json!({ "rule": rule.name, "namespace": rule.namespace, "tags": tags, "meta": meta })
}

fn name<'s>(scanner: &'s Scanner, meta: &Metadata) -> &'s str {
    scanner.get_string_symbol(meta.name)
}

fn value(scanner: &Scanner, meta: &Metadata) -> Value {
    match meta.value {
        MetadataValue::Bytes(bytes) => String::from_utf8_lossy(scanner.get_bytes_symbol(bytes)).into(),
        MetadataValue::Integer(n) => n.into(),
        MetadataValue::Boolean(is) => is.into(),
    }
}
