//! Tables by functions: `csv('/data/trips.csv', 'schema=id utf8')`.

use std::sync::Arc;

use datafusion::catalog::{TableFunctionImpl, TableProvider};
use datafusion::common::{Result, ScalarValue, plan_datafusion_err, plan_err};
use datafusion::logical_expr::{Expr, lit};
use nearside_fsrlib::{Globs, RowFormat, SelectOptions, Target};

use crate::Options;
use crate::lines::Lines;
use crate::rows::Rows;
use crate::way::Drives;

/// What a function makes a table of.
#[derive(Clone, Copy, Debug)]
enum Of {
    Rows(RowFormat),
    Lines,
}

#[derive(Debug)]
struct Function {
    name: &'static str,
    of: Of,
    drives: Drives,
    options: Options,
}

/// Functions that make tables, by their names, for any session of DataFusion's.
pub fn all(drives: &Drives, options: Options) -> Vec<(&'static str, Arc<dyn TableFunctionImpl>)> {
    let csv = |delimiter| Of::Rows(RowFormat::Csv { delimiter, quote: Some(b'"'), header: true });
    let each = [
        ("csv", csv(b',')),
        ("tsv", csv(b'\t')),
        ("json", Of::Rows(RowFormat::JsonLines)),
        ("parquet", Of::Rows(RowFormat::Parquet)),
        ("lines", Of::Lines),
    ];
    let made = each.into_iter().map(|(name, of)| {
        let drives = drives.clone();
        (name, Arc::new(Function { name, of, drives, options }) as Arc<dyn TableFunctionImpl>)
    });
    made.collect()
}

/// The table of a function: of a path, and the function's options.
///
/// # Errors
/// There is no such function; what is wrong with the words; why the first file that says so has no columns.
pub fn table(
    drives: &Drives,
    options: Options,
    function: &str,
    words: Vec<String>,
) -> Result<Arc<dyn TableProvider>> {
    let found = all(drives, options).into_iter().find(|(name, _)| *name == function);
    let (_, function) = found.ok_or_else(|| plan_datafusion_err!("{function}: no such function"))?;
    function.call(&words.into_iter().map(lit).collect::<Vec<_>>())
}

/// Which files a path is about: it may be a pattern of the drive's ([`Globs`]).
fn target(path: &str) -> Result<Target> {
    if !path.starts_with('/') {
        return plan_err!("{path}: not an absolute path");
    }
    let pattern = |text: &str| Globs::is_pattern(text.as_bytes());
    Ok(match path.strip_suffix("/**") {
        // Every file below a directory.
        Some(root) if !pattern(root) => Target::Tree {
            root: if root.is_empty() { b"/".to_vec() } else { root.into() },
            include: Vec::new(),
            exclude: Vec::new(),
            max_depth: u32::MAX,
        },
        _ if pattern(path) => Target::Glob(path.into()),
        _ => Target::Path(path.into()),
    })
}

/// A character of an option's.
fn character(option: &str, text: &str) -> Result<u8> {
    match text.as_bytes() {
        [byte] if byte.is_ascii() && !matches!(byte, b'\r' | b'\n') => Ok(*byte),
        br"\t" => Ok(b'\t'),
        _ => plan_err!("{option}: one ASCII character is wanted"),
    }
}

/// What the options of a table of rows say, in the words of `nearside select`.
fn select(name: &str, mut format: RowFormat, words: &[&str]) -> Result<SelectOptions> {
    let mut select = SelectOptions::default();
    for word in words {
        let unknown = || plan_datafusion_err!("{name}: {word:?} is no option of it");
        let (option, value) = word.split_once('=').map_or((*word, None), |(name, value)| (name, Some(value)));
        match (option.trim(), value, &mut format) {
            ("schema", Some(value), _) => {
                select.schema =
                    SelectOptions::schema(value).map_err(|e| plan_datafusion_err!("schema: {e}"))?;
            }
            ("columns", Some(value), _) => {
                let names = SelectOptions::names(value);
                select.columns = names.map_err(|e| plan_datafusion_err!("columns: {e}"))?;
            }
            ("skip-bad", None, _) => select.skip_bad = true,
            ("no-header", None, RowFormat::Csv { header, .. }) => *header = false,
            ("no-quote", None, RowFormat::Csv { quote, .. }) => *quote = None,
            ("delimiter", Some(value), RowFormat::Csv { delimiter, .. }) => {
                *delimiter = character(option, value)?
            }
            ("quote", Some(value), RowFormat::Csv { quote, .. }) => *quote = Some(character(option, value)?),
            _ => return Err(unknown()),
        }
    }
    if let RowFormat::Csv { delimiter, quote, .. } = format
        && quote == Some(delimiter)
    {
        return plan_err!("{name}: the delimiter and the quote are the same");
    }
    Ok(SelectOptions { format, ..select })
}

impl TableFunctionImpl for Function {
    fn call(&self, arguments: &[Expr]) -> Result<Arc<dyn TableProvider>> {
        let name = self.name;
        let texts = arguments.iter().map(|argument| match argument {
            Expr::Literal(ScalarValue::Utf8(Some(text)) | ScalarValue::Utf8View(Some(text)), _) => {
                Ok(&**text)
            }
            other => plan_err!("{name}: {other} is no text: {name}('/path', 'option', ...)"),
        });
        let texts = texts.collect::<Result<Vec<&str>>>()?;
        let [path, words @ ..] = &texts[..] else {
            return plan_err!("{name}: which file? {name}('/path', 'option', ...)");
        };
        let target = target(path)?;
        Ok(match self.of {
            Of::Lines => Arc::new(Lines::new(&self.drives, self.options, target, words)?),
            Of::Rows(format) => {
                let select = select(name, format, words)?;
                Arc::new(Rows::open(&self.drives, self.options, target, select)?)
            }
        })
    }
}
