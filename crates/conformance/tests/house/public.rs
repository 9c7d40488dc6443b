//! Nothing is public that nobody uses. Found by name: an item counts as used if its name stands anywhere else
//! in the workspace as a word of code, other than in a definition, a re-export or the head of an `impl`. What
//! shares its name with something used is not found, nor what only other dead code uses.

use std::collections::BTreeSet;

use proc_macro2::{Delimiter, TokenTree};

use crate::sources::{between, is_mark, sources, word};

/// What is public for users outside the workspace: a crate and a name, or a whole crate (`*`), and why.
const FOR_USERS: &[(&str, &str, &str)] =
    &[("fsrlib-c", "*", "what a C program calls, and what it hands over")];

#[test]
fn no_public_item_is_dead() {
    let (mut used, mut items) = (BTreeSet::new(), Vec::new());
    for source in sources() {
        source.levels(|within, tokens| {
            let is_items = within == Delimiter::None || within == Delimiter::Brace;
            let mut at = 0;
            while at < tokens.len() {
                let rest = &tokens[at..];
                if let Some(name) = public_item(rest).filter(|_| source.is_product()) {
                    items.push((
                        source.home().to_owned(),
                        name,
                        source.path.clone(),
                        rest[0].span().start().line,
                    ));
                }
                let begins = at == 0
                    || matches!(tokens[at - 1], TokenTree::Group(_))
                    || is_mark(tokens.get(at - 1), ';');
                at += match () {
                    () if is_reexport(rest) => until(rest, |t| is_mark(Some(t), ';')),
                    () if is_items && begins && is_word(rest, 0, "impl") => {
                        until(rest, |t| between(Some(t), Delimiter::Brace).is_some())
                    }
                    () if defines(rest) => 2,
                    () => {
                        used.extend(word(rest.first()));
                        1
                    }
                };
            }
        });
    }
    let mut wrong = Vec::new();
    let mut needed = BTreeSet::new();
    for (home, name, path, line) in items.iter().filter(|item| !used.contains(&item.1)) {
        let home = home.strip_prefix("crates/").unwrap_or(home);
        match FOR_USERS.iter().position(|(of, what, _)| *of == home && (what == name || *what == "*")) {
            Some(line) => _ = needed.insert(line),
            None => wrong.push(format!("{path}:{line}: {name}")),
        }
    }
    let idle = FOR_USERS.iter().enumerate().filter(|(line, _)| !needed.contains(line));
    wrong.extend(idle.map(|(_, (home, name, _))| format!("{home}: {name} need not be listed any more")));
    assert!(
        wrong.is_empty(),
        "public, and used by nobody: it goes, or FOR_USERS says for whom it is\n{}",
        wrong.join("\n")
    );
}

fn is_word(tokens: &[TokenTree], at: usize, is: &str) -> bool {
    word(tokens.get(at)).is_some_and(|word| word == is)
}

const ITEMS: &[&str] = &["fn", "struct", "enum", "union", "trait", "type", "const", "static", "mod"];

fn defines(tokens: &[TokenTree]) -> bool {
    ITEMS.iter().any(|item| is_word(tokens, 0, item)) && word(tokens.get(1)).is_some()
}

/// The name of the item that `pub` begins here; `pub(crate)` is not public, and the compiler sees to it.
fn public_item(tokens: &[TokenTree]) -> Option<String> {
    let [first, rest @ ..] = tokens else { return None };
    word(Some(first)).filter(|w| w == "pub")?;
    let qualifies = |t: &TokenTree| match t {
        TokenTree::Literal(_) => true, // extern "C"
        _ => word(Some(t)).is_some_and(|w| ["const", "unsafe", "async", "extern"].contains(&w.as_str())),
    };
    let skipped = rest.iter().take_while(|t| qualifies(t)).count();
    let item = match () {
        () if defines(&rest[skipped..]) => &rest[skipped..],
        () if skipped > 0 => &rest[skipped - 1..], // a constant
        () => return None,
    };
    word(item.get(1)).filter(|_| defines(item))
}

fn is_reexport(tokens: &[TokenTree]) -> bool {
    let restricted = usize::from(between(tokens.get(1), Delimiter::Parenthesis).is_some());
    is_word(tokens, 0, "pub") && is_word(tokens, 1 + restricted, "use")
}

fn until(tokens: &[TokenTree], end: impl Fn(&TokenTree) -> bool) -> usize {
    tokens.iter().position(end).unwrap_or(tokens.len())
}
