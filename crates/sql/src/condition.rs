//! Which of DataFusion's conditions a drive can hold its rows to, and in which words.
//!
//! A condition goes to the drive where the drive finds true what DataFusion finds true. Where it finds true
//! more than that, the scan asks what is left once more: zero has a sign for DataFusion, by IEEE 754's
//! totalOrder, and none for the drive.

use datafusion::arrow::datatypes::{DataType, Schema};
use datafusion::arrow::temporal_conversions::{date32_to_datetime, timestamp_us_to_datetime};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::expr::{Between, InList, Like};
use datafusion::logical_expr::{BinaryExpr, Cast, Expr, Operator, TableProviderFilterPushDown};
use nearside_fsrlib::{ColumnType, Comparison, Literal, Term};
use nearside_near_data::{MAX_REGEX_NEST, MAX_REGEX_TEXT, MAX_REGEXES, MAX_TERM_TEXT, MAX_TERMS};

use crate::batch::kind_of;
use crate::pattern::{Pattern, text_of};

/// Deepest condition that is looked at.
const DEEPEST: usize = 128;

/// A condition in a drive's words.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Condition {
    /// In postfix order.
    pub terms: Vec<Term>,
    /// It holds for more rows than DataFusion's.
    pub wider: bool,
}

/// What a drive takes of conditions.
fn has_room(terms: &[Term]) -> bool {
    let regexes = terms.iter().filter(|term| matches!(term, Term::Regex(_))).count();
    terms.len() <= MAX_TERMS && regexes <= MAX_REGEXES
}

/// Which conditions a scan takes, each by itself: those for which the drive has words. What a scan is then
/// given may be more than a drive takes at once, and may not be the same: DataFusion looks for simpler words
/// until the last ([`held_to`]).
pub(crate) fn split(filters: &[&Expr], schema: &Schema) -> Vec<TableProviderFilterPushDown> {
    let reader = Reader { schema };
    let each = filters.iter().map(|filter| match reader.condition(filter, 0) {
        Some(one) if has_room(&one.terms) => TableProviderFilterPushDown::Exact,
        _ => TableProviderFilterPushDown::Unsupported,
    });
    each.collect()
}

/// What a drive is held to of conditions, as one, and those that are asked of its rows here as well: for
/// which it has no words, or no room, or which it finds true of more.
pub(crate) fn held_to<'f>(filters: &'f [Expr], schema: &Schema) -> (Vec<Term>, Vec<&'f Expr>) {
    let (mut terms, mut left) = (Vec::new(), Vec::new());
    for filter in filters {
        let one = (Reader { schema }).condition(filter, 0);
        if one.as_ref().is_none_or(|one| one.wider) {
            left.push(filter);
        }
        let Some(one) = one else { continue };
        let before = terms.len();
        terms.extend(one.terms);
        if before > 0 {
            terms.push(Term::And);
        }
        if !has_room(&terms) {
            terms.truncate(before);
            if !one.wider {
                left.push(filter);
            }
        }
    }
    (terms, left)
}

/// One side of a comparison.
struct Operand {
    kind: ColumnType,
    term: Term,
}

impl Operand {
    fn is_literal(&self) -> bool {
        matches!(self.term, Term::Literal(_))
    }

    /// The sign of a zero among floating-point numbers.
    fn zero(&self) -> Option<bool> {
        match self.term {
            Term::Literal(Literal::Float(number)) if number == 0.0 => Some(number.is_sign_negative()),
            _ => None,
        }
    }
}

/// A day or an instant as texts beside them are read: years of four digits.
fn dated(scalar: &ScalarValue) -> Option<(ColumnType, String)> {
    let (kind, time, form) = match scalar {
        ScalarValue::Date32(Some(days)) => (ColumnType::Date, date32_to_datetime(*days)?, "%Y-%m-%d"),
        ScalarValue::TimestampMicrosecond(Some(at), None) => {
            (ColumnType::Timestamp, timestamp_us_to_datetime(*at)?, "%Y-%m-%dT%H:%M:%S%.6f")
        }
        _ => return None,
    };
    let text = time.format(form).to_string();
    let four = text.as_bytes().get(..5).is_some_and(|year| year[..4].iter().all(u8::is_ascii_digit));
    (four && text.as_bytes()[4] == b'-').then_some((kind, text))
}

fn literal(scalar: &ScalarValue) -> Option<Operand> {
    let (kind, literal) = match scalar {
        ScalarValue::Int64(Some(number)) => (ColumnType::Int64, Literal::Int(*number)),
        ScalarValue::Float64(Some(number)) if !number.is_nan() => {
            (ColumnType::Float64, Literal::Float(*number))
        }
        ScalarValue::Utf8(Some(text)) if text.len() <= MAX_TERM_TEXT => {
            (ColumnType::Utf8, Literal::Text(text.clone()))
        }
        other => {
            let (kind, text) = dated(other)?;
            (kind, Literal::Text(text))
        }
    };
    Some(Operand { kind, term: Term::Literal(literal) })
}

fn comparison(op: Operator) -> Option<Comparison> {
    Some(match op {
        Operator::Eq => Comparison::Equal,
        Operator::NotEq => Comparison::NotEqual,
        Operator::Lt => Comparison::Less,
        Operator::LtEq => Comparison::LessOrEqual,
        Operator::Gt => Comparison::Greater,
        Operator::GtEq => Comparison::GreaterOrEqual,
        _ => return None,
    })
}

/// How a column's numbers are to be compared with a zero of a sign, so that no row is lost; whether rows are
/// found that DataFusion does not find. `None`: there is no such way.
fn beside_zero(comparison: Comparison, negative: bool) -> Option<(Comparison, bool)> {
    use Comparison::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual, NotEqual};
    Some(match (comparison, negative) {
        // Both zeros are within, or both are without.
        (Greater | LessOrEqual, false) | (Less | GreaterOrEqual, true) => (comparison, false),
        // DataFusion finds one zero: the drive finds both.
        (Less | LessOrEqual, _) => (LessOrEqual, true),
        (Greater | GreaterOrEqual, _) => (GreaterOrEqual, true),
        (Equal, _) => (Equal, true),
        (NotEqual, _) => return None,
    })
}

fn compared(left: Operand, comparison: Comparison, right: Operand) -> Option<Condition> {
    let (left, comparison, right) = match left.is_literal() {
        true => (right, comparison.turned(), left),
        false => (left, comparison, right),
    };
    if left.is_literal() || left.kind != right.kind || left.kind == ColumnType::Bool {
        return None;
    }
    let (comparison, wider) = match right.zero() {
        Some(negative) => beside_zero(comparison, negative)?,
        // Of two columns any may be a zero.
        None if left.kind == ColumnType::Float64 && !right.is_literal() => return None,
        None => (comparison, false),
    };
    Some(Condition { terms: vec![left.term, right.term, Term::Compare(comparison)], wider })
}

fn not(condition: Condition) -> Option<Condition> {
    let Condition { mut terms, wider } = condition;
    terms.push(Term::Not);
    // What is wider is narrower, turned round.
    (!wider).then_some(Condition { terms, wider })
}

fn turned_round(condition: Condition, negated: bool) -> Option<Condition> {
    if negated { not(condition) } else { Some(condition) }
}

fn both(left: Condition, right: Condition, how: Term) -> Condition {
    let wider = left.wider || right.wider;
    let terms = left.terms.into_iter().chain(right.terms).chain([how]).collect();
    Condition { terms, wider }
}

/// A pattern of LIKE that means the same to both: a backslash stands before what it takes the meaning of.
fn is_plain_pattern(pattern: &str) -> bool {
    let mut characters = pattern.chars();
    while let Some(character) = characters.next() {
        if character == '\\' && !matches!(characters.next(), Some('%' | '_' | '\\')) {
            return false;
        }
    }
    pattern.len() <= MAX_TERM_TEXT
}

struct Reader<'s> {
    schema: &'s Schema,
}

impl Reader<'_> {
    fn column(&self, expr: &Expr) -> Option<Operand> {
        let (column, cast) = match expr {
            Expr::Column(column) => (column, None),
            Expr::Cast(Cast { expr, data_type }) => match &**expr {
                Expr::Column(column) => (column, Some(data_type)),
                _ => return None,
            },
            _ => return None,
        };
        let own = kind_of(self.schema.field_with_name(&column.name).ok()?.data_type())?;
        let kind = match cast {
            None => own,
            // Beside a number with a point an integer is one.
            Some(DataType::Float64) if own == ColumnType::Int64 => ColumnType::Float64,
            Some(_) => return None,
        };
        Some(Operand { kind, term: Term::Column(column.name.clone()) })
    }

    fn operand(&self, expr: &Expr) -> Option<Operand> {
        match expr {
            Expr::Literal(scalar, _) => literal(scalar),
            other => self.column(other),
        }
    }

    fn compare(&self, left: &Expr, op: Operator, right: &Expr) -> Option<Condition> {
        compared(self.operand(left)?, comparison(op)?, self.operand(right)?)
    }

    fn regex(&self, text: &Expr, pattern: &Expr, ignore_case: bool) -> Option<Condition> {
        let pattern = format!("{}{}", if ignore_case { "(?i)" } else { "" }, text_of(pattern)?);
        self.matches(text, pattern)
    }

    fn matches(&self, text: &Expr, pattern: String) -> Option<Condition> {
        let column = self.column(text).filter(|column| column.kind == ColumnType::Utf8)?;
        let taken = pattern.len() <= MAX_REGEX_TEXT
            && regex_syntax::ParserBuilder::new().nest_limit(MAX_REGEX_NEST).build().parse(&pattern).is_ok();
        taken.then(|| Condition { terms: vec![column.term, Term::Regex(pattern)], wider: false })
    }

    fn like(&self, like: &Like) -> Option<Condition> {
        let text = text_of(&like.pattern).filter(|pattern| is_plain_pattern(pattern))?;
        if like.escape_char.is_some_and(|escape| escape != '\\') {
            return None;
        }
        // Which characters are alike but for their case, DataFusion has from regular expressions.
        if like.case_insensitive {
            let pattern = Pattern { text, escape: '\\', ignore_case: true };
            return self.matches(&like.expr, pattern.expression());
        }
        let column = self.column(&like.expr).filter(|column| column.kind == ColumnType::Utf8)?;
        let like = Term::Like { pattern: text.to_owned(), ignore_case: false };
        Some(Condition { terms: vec![column.term, like], wider: false })
    }

    fn among(&self, list: &InList) -> Option<Condition> {
        let column = self.column(&list.expr).filter(|column| column.kind != ColumnType::Bool)?;
        let mut terms = vec![column.term];
        for item in &list.list {
            let Expr::Literal(scalar, _) = item else { return None };
            let item = literal(scalar).filter(|item| item.kind == column.kind && item.zero().is_none())?;
            terms.push(item.term);
        }
        terms.push(Term::In(u32::try_from(list.list.len()).ok()?));
        Some(Condition { terms, wider: false })
    }

    fn between(&self, between: &Between) -> Option<Condition> {
        let low = self.compare(&between.expr, Operator::GtEq, &between.low)?;
        let high = self.compare(&between.expr, Operator::LtEq, &between.high)?;
        Some(both(low, high, Term::And))
    }

    /// A condition in the drive's words; `None`: there are none.
    fn condition(&self, expr: &Expr, depth: usize) -> Option<Condition> {
        if depth > DEEPEST {
            return None;
        }
        match expr {
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => match op {
                Operator::And | Operator::Or => {
                    let how = if *op == Operator::And { Term::And } else { Term::Or };
                    let (left, right) = (self.condition(left, depth + 1)?, self.condition(right, depth + 1)?);
                    Some(both(left, right, how))
                }
                Operator::RegexMatch => self.regex(left, right, false),
                Operator::RegexIMatch => self.regex(left, right, true),
                Operator::RegexNotMatch => not(self.regex(left, right, false)?),
                Operator::RegexNotIMatch => not(self.regex(left, right, true)?),
                op => self.compare(left, *op, right),
            },
            Expr::Not(expr) => not(self.condition(expr, depth + 1)?),
            Expr::IsNull(expr) => Some(self.is_null(expr)?),
            Expr::IsNotNull(expr) => not(self.is_null(expr)?),
            Expr::Between(between) => turned_round(self.between(between)?, between.negated),
            Expr::InList(list) => turned_round(self.among(list)?, list.negated),
            Expr::Like(like) => turned_round(self.like(like)?, like.negated),
            Expr::Column(_) => {
                let column = self.column(expr).filter(|column| column.kind == ColumnType::Bool)?;
                Some(Condition { terms: vec![column.term], wider: false })
            }
            _ => None,
        }
    }

    fn is_null(&self, expr: &Expr) -> Option<Condition> {
        let Expr::Column(_) = expr else { return None };
        Some(Condition { terms: vec![self.column(expr)?.term, Term::IsNull], wider: false })
    }
}

/// Terms as `nearside select --where` takes them.
pub(crate) struct Shown<'t>(pub &'t [Term]);

impl std::fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut held: Vec<String> = Vec::new();
        for term in self.0 {
            let taken = held.split_off(held.len().saturating_sub(term.takes()));
            let nth = |nth: usize| taken.get(nth).map_or("?", String::as_str);
            let quoted = |text: &str| format!("'{}'", text.replace('\'', "''"));
            held.push(match term {
                Term::Column(name) => match name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
                    true => name.clone(),
                    false => format!("\"{}\"", name.replace('"', "\"\"")),
                },
                Term::Literal(Literal::Null) => "null".to_owned(),
                Term::Literal(Literal::Bool(is)) => is.to_string(),
                Term::Literal(Literal::Int(number)) => number.to_string(),
                Term::Literal(Literal::Float(number)) => format!("{number:?}"),
                Term::Literal(Literal::Text(text)) => quoted(text),
                Term::Compare(comparison) => format!("{} {} {}", nth(0), sign(*comparison), nth(1)),
                Term::And => format!("{} and {}", nth(0), nth(1)),
                Term::Or => format!("({} or {})", nth(0), nth(1)),
                Term::Not => format!("not ({})", nth(0)),
                Term::IsNull => format!("{} is null", nth(0)),
                Term::In(_) => format!("{} in ({})", nth(0), taken.get(1..).unwrap_or_default().join(", ")),
                Term::Like { pattern, ignore_case } => {
                    let like = if *ignore_case { "ilike" } else { "like" };
                    format!("{} {like} {}", nth(0), quoted(pattern))
                }
                Term::Regex(pattern) => format!("{} ~ {}", nth(0), quoted(pattern)),
            });
        }
        f.write_str(&held.join(", "))
    }
}

fn sign(comparison: Comparison) -> &'static str {
    match comparison {
        Comparison::Equal => "=",
        Comparison::NotEqual => "<>",
        Comparison::Less => "<",
        Comparison::LessOrEqual => "<=",
        Comparison::Greater => ">",
        Comparison::GreaterOrEqual => ">=",
    }
}
