//! How long things are, and that whoever silences a lint says why.

use proc_macro2::{Delimiter, TokenTree};

use crate::sources::{between, is_mark, levels, sources, word};

const LINES_OF_A_FILE: usize = 1000;
const LINES_OF_A_FUNCTION: usize = 80;
const COLUMNS_OF_A_COMMENT: usize = 110;

#[test]
fn files_hold_one_idea() {
    for source in sources() {
        let lines = source.text.lines().count();
        let path = source.path;
        assert!(lines <= LINES_OF_A_FILE, "{path} has {lines} lines: it holds more than one idea");
        let documented = source.text.starts_with("//!") || source.text.starts_with("#!");
        assert!(documented, "{path} does not begin with what it is");
    }
}

/// Tests and benchmarks as well: what is too long to read is so wherever it stands.
#[test]
fn functions_are_read_at_one_glance() {
    let mut wrong = Vec::new();
    for source in sources() {
        source.levels(|_, tokens| {
            for at in 0..tokens.len() {
                let Some((name, lines)) = function(&tokens[at..]) else { continue };
                if lines > LINES_OF_A_FUNCTION {
                    wrong.push(format!("{}: {name} has {lines} lines", source.path));
                }
            }
        });
    }
    assert!(
        wrong.is_empty(),
        "a function of more than {LINES_OF_A_FUNCTION} lines has parts that want a name:\n{}",
        wrong.join("\n")
    );
}

/// The name of the function that begins here, and its lines from `fn` to the last bracket.
fn function(tokens: &[TokenTree]) -> Option<(String, usize)> {
    let [first, name, rest @ ..] = tokens else { return None };
    let name = word(Some(name)).filter(|_| word(Some(first)).is_some_and(|w| w == "fn"))?;
    let body = rest.iter().find(|t| is_mark(Some(t), ';') || between(Some(t), Delimiter::Brace).is_some())?;
    let TokenTree::Group(body) = body else { return None };
    Some((name, body.span_close().end().line - first.span().start().line + 1))
}

#[test]
fn comments_are_not_wider_than_code() {
    let mut wrong = Vec::new();
    for source in sources() {
        for (at, line) in source.text.lines().enumerate() {
            let comment = line.trim_start().starts_with("//") || line.contains(" // ");
            if comment && line.chars().count() > COLUMNS_OF_A_COMMENT {
                wrong.push(format!("{}:{}", source.path, at + 1));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "a comment ends at column {COLUMNS_OF_A_COMMENT}, as code does: say it shorter, or wrap it\n{}",
        wrong.join("\n")
    );
}

#[test]
fn a_silenced_lint_says_why() {
    let mut silent = Vec::new();
    for source in sources() {
        source.levels(|_, tokens| {
            for at in (0..tokens.len()).filter(|at| is_mark(tokens.get(*at), '#')) {
                let inner = usize::from(is_mark(tokens.get(at + 1), '!'));
                let Some(attribute) = between(tokens.get(at + 1 + inner), Delimiter::Bracket) else {
                    continue;
                };
                levels(Delimiter::Bracket, attribute, &mut |_, tokens| {
                    if silences_without_a_reason(tokens) {
                        silent.push(format!("{}:{}", source.path, tokens[0].span().start().line));
                    }
                });
            }
        });
    }
    assert!(
        silent.is_empty(),
        "allow and expect carry a `reason = \"...\"`, or nobody knows when they may go:\n{}",
        silent.join("\n")
    );
}

fn silences_without_a_reason(tokens: &[TokenTree]) -> bool {
    (0..tokens.len()).any(|at| {
        let silences = word(tokens.get(at)).is_some_and(|w| w == "allow" || w == "expect");
        let lints = between(tokens.get(at + 1), Delimiter::Parenthesis).filter(|_| silences);
        lints.is_some_and(|lints| !lints.into_iter().any(|t| word(Some(&t)).is_some_and(|w| w == "reason")))
    })
}
