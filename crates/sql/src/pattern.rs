//! What conditions of texts say to a drive: where a path begins, what a line has to match.
//!
//! Both are wider than the condition, and DataFusion asks it once more: a text that is no UTF-8 is shown with
//! U+FFFD in the place of what is none, while drives look at its bytes.

use datafusion::common::ScalarValue;
use datafusion::logical_expr::expr::Like;
use datafusion::logical_expr::{BinaryExpr, Expr, Operator};
use nearside_near_data::MAX_REGEX_NEST;
use regex_syntax::hir::{Class, ClassBytes, ClassBytesRange, Hir, HirKind, Look, Repetition};

/// How a path begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Beginning {
    /// It is this.
    Whole(String),
    /// It begins so.
    Of(String),
}

fn is_column(expr: &Expr, name: &str) -> bool {
    matches!(expr, Expr::Column(column) if column.name == name)
}

/// A text that stands in a query.
pub(crate) fn text_of(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Literal(ScalarValue::Utf8(Some(text)) | ScalarValue::Utf8View(Some(text)), _) => Some(text),
        _ => None,
    }
}

/// A text that a column is equal to.
fn equal<'e>(column: &str, expr: &'e Expr) -> Option<&'e str> {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) if is_column(left, column) => {
            text_of(right)
        }
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) if is_column(right, column) => {
            text_of(left)
        }
        _ => None,
    }
}

/// A pattern of LIKE.
pub(crate) struct Pattern<'e> {
    /// As it stands in the query.
    pub text: &'e str,
    /// Before what stands for itself.
    pub escape: char,
    /// It is one of ILIKE.
    pub ignore_case: bool,
}

/// A pattern that a column is like.
fn like<'e>(column: &str, expr: &'e Expr) -> Option<Pattern<'e>> {
    match expr {
        Expr::Like(Like { negated: false, expr, pattern, escape_char, case_insensitive })
            if is_column(expr, column) =>
        {
            let escape = escape_char.unwrap_or('\\');
            Some(Pattern { text: text_of(pattern)?, escape, ignore_case: *case_insensitive })
        }
        _ => None,
    }
}

/// A character that is no UTF-8 is shown so.
const REPLACED: char = char::REPLACEMENT_CHARACTER;

/// How a column's texts begin where a condition holds.
pub(crate) fn beginning(column: &str, expr: &Expr) -> Option<Beginning> {
    let found = match (equal(column, expr), like(column, expr)) {
        (Some(path), _) => Beginning::Whole(path.to_owned()),
        (None, Some(Pattern { text, escape, ignore_case: false })) => {
            Beginning::Of(text.chars().take_while(|c| !matches!(c, '%' | '_') && *c != escape).collect())
        }
        _ => return None,
    };
    let (Beginning::Whole(text) | Beginning::Of(text)) = &found;
    (!text.contains(REPLACED)).then_some(found)
}

/// A regular expression that every line matches for which a condition of a column holds.
pub(crate) fn line(column: &str, expr: &Expr) -> Option<Hir> {
    let pattern = match expr {
        Expr::BinaryExpr(BinaryExpr {
            left,
            op: op @ (Operator::RegexMatch | Operator::RegexIMatch),
            right,
        }) if is_column(left, column) => {
            let ignore_case = if *op == Operator::RegexIMatch { "(?i)" } else { "" };
            format!("{ignore_case}{}", text_of(right)?)
        }
        expr => match (equal(column, expr), like(column, expr)) {
            (Some(text), _) => format!("^{}$", regex_syntax::escape(text)),
            (None, Some(like)) => like.expression(),
            (None, None) => return None,
        },
    };
    let mut parser = regex_syntax::ParserBuilder::new().nest_limit(MAX_REGEX_NEST).build();
    wide(&parser.parse(&pattern).ok()?)
}

impl Pattern<'_> {
    /// A regular expression that matches the same texts, or more where the escape stands before other
    /// characters.
    pub(crate) fn expression(&self) -> String {
        let mut expression = if self.ignore_case { "(?is)^".to_owned() } else { "(?s)^".to_owned() };
        let mut characters = self.text.chars();
        while let Some(character) = characters.next() {
            match character {
                '%' => expression.push_str(".*"),
                '_' => expression.push('.'),
                // Whatever a lone one means.
                escape if escape == self.escape => match characters.next() {
                    Some(escaped) if matches!(escaped, '%' | '_') || escaped == self.escape => {
                        expression.push_str(&regex_syntax::escape(escaped.encode_utf8(&mut [0; 4])));
                    }
                    _ => expression.push_str(".*"),
                },
                character => expression.push_str(&regex_syntax::escape(character.encode_utf8(&mut [0; 4]))),
            }
        }
        expression + "$"
    }
}

/// The same over bytes, wider and never narrower: where a text has U+FFFD, it may be any that are no UTF-8.
fn wide(hir: &Hir) -> Option<Hir> {
    let all = |parts: &[Hir]| parts.iter().map(wide).collect::<Option<Vec<_>>>();
    Some(match hir.kind() {
        HirKind::Empty => Hir::empty(),
        HirKind::Literal(literal) => {
            let text = std::str::from_utf8(&literal.0).ok()?;
            if text.contains(REPLACED) {
                return None;
            }
            // No line holds its end.
            if text.contains('\n') { Hir::fail() } else { hir.clone() }
        }
        HirKind::Class(Class::Unicode(class)) => {
            match class.iter().any(|range| (range.start()..=range.end()).contains(&REPLACED)) {
                true => Hir::alternation(vec![hir.clone(), no_text()]),
                false => hir.clone(),
            }
        }
        HirKind::Class(Class::Bytes(_)) => return None,
        // A line is all that there is of a text.
        HirKind::Look(Look::Start) => Hir::look(Look::StartLF),
        HirKind::Look(Look::End) => Hir::look(Look::EndLF),
        HirKind::Look(_) => Hir::empty(),
        HirKind::Repetition(repetition) => {
            let sub = Box::new(wide(&repetition.sub)?);
            Hir::repetition(Repetition { sub, ..repetition.clone() })
        }
        HirKind::Capture(capture) => wide(&capture.sub)?,
        HirKind::Concat(parts) => Hir::concat(all(parts)?),
        HirKind::Alternation(parts) => Hir::alternation(all(parts)?),
    })
}

/// Up to three bytes that are no UTF-8 are one U+FFFD.
fn no_text() -> Hir {
    let bytes = ClassBytes::new([ClassBytesRange::new(0x80, 0xff)]);
    let sub = Box::new(Hir::class(Class::Bytes(bytes)));
    Hir::repetition(Repetition { min: 1, max: Some(3), greedy: true, sub })
}
