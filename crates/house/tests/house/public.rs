//! Nothing is public that nobody uses. Found by name: an item counts as used if its name stands anywhere else
//! in the workspace as a word of code, other than in a definition, a re-export or the head of an `impl`. What
//! shares its name with something used is not found, nor what only other dead code uses.

use std::collections::BTreeSet;

use proc_macro2::{Delimiter, TokenTree};

use crate::sources::{Source, between, is_mark, sources, word};

/// What is public for users outside the workspace: a crate and a name, or a whole crate (`*`), and why.
const FOR_USERS: &[(&str, &str, &str)] =
    &[("fsrlib-c", "*", "what a C program calls, and what it hands over")];

struct Item {
    home: String,
    name: String,
    place: String,
}

#[test]
fn no_public_item_is_dead() {
    let (mut used, mut items) = (BTreeSet::new(), Vec::new());
    for source in sources() {
        look_through(&source, &mut used, &mut items);
    }
    let mut wrong = Vec::new();
    let mut needed = BTreeSet::new();
    for item in items.iter().filter(|item| !used.contains(&item.name)) {
        let is_for =
            |(home, name, _): &(&str, &str, &str)| *home == item.home && (*name == item.name || *name == "*");
        match FOR_USERS.iter().position(is_for) {
            Some(line) => _ = needed.insert(line),
            None => wrong.push(format!("{}: {}", item.place, item.name)),
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

/// Collects the words that count as uses, and the public items of libraries and programs.
fn look_through(source: &Source, used: &mut BTreeSet<String>, items: &mut Vec<Item>) {
    source.levels(|within, tokens| {
        let mut at = 0;
        while at < tokens.len() {
            let rest = &tokens[at..];
            if let Some(name) = public_item(rest).filter(|_| source.is_product()) {
                let home = source.home().trim_start_matches("crates/").to_owned();
                let place = format!("{}:{}", source.path, rest[0].span().start().line);
                items.push(Item { home, name, place });
            }
            let begins =
                at == 0 || matches!(tokens[at - 1], TokenTree::Group(_)) || is_mark(tokens.get(at - 1), ';');
            at += if is_reexport(rest) {
                until(rest, |t| is_mark(Some(t), ';'))
            } else if begins && within != Delimiter::Parenthesis && is_word(rest, 0, "impl") {
                until(rest, |t| between(Some(t), Delimiter::Brace).is_some())
            } else if defines(rest) {
                2
            } else {
                used.extend(word(rest.first()));
                1
            };
        }
    });
}

fn is_word(tokens: &[TokenTree], at: usize, is: &str) -> bool {
    word(tokens.get(at)).is_some_and(|word| word == is)
}

const ITEMS: &[&str] = &["fn", "struct", "enum", "union", "trait", "type", "const", "static", "mod"];

const QUALIFIERS: &[&str] = &["const", "unsafe", "async", "extern"];

/// Whether an item and its name stand here; the `const` of a `const fn` is none.
fn defines(tokens: &[TokenTree]) -> bool {
    let is_name = |word: String| !ITEMS.contains(&&*word) && !QUALIFIERS.contains(&&*word);
    ITEMS.iter().any(|item| is_word(tokens, 0, item)) && word(tokens.get(1)).is_some_and(is_name)
}

/// The name of the item that `pub` begins here; `pub(crate)` is not public, and the compiler sees to it.
fn public_item(tokens: &[TokenTree]) -> Option<String> {
    let [first, rest @ ..] = tokens else { return None };
    word(Some(first)).filter(|w| w == "pub")?;
    let qualifies = |t: &TokenTree| match t {
        TokenTree::Literal(_) => true, // extern "C"
        _ => word(Some(t)).is_some_and(|w| QUALIFIERS.contains(&&*w)),
    };
    let skipped = rest.iter().take_while(|t| qualifies(t)).count();
    // The last of them begins a constant, or is none of them.
    let item = if defines(&rest[skipped..]) { &rest[skipped..] } else { &rest[skipped.saturating_sub(1)..] };
    word(item.get(1)).filter(|_| defines(item))
}

fn is_reexport(tokens: &[TokenTree]) -> bool {
    let restricted = usize::from(between(tokens.get(1), Delimiter::Parenthesis).is_some());
    is_word(tokens, 0, "pub") && is_word(tokens, 1 + restricted, "use")
}

fn until(tokens: &[TokenTree], end: impl Fn(&TokenTree) -> bool) -> usize {
    tokens.iter().position(end).unwrap_or(tokens.len())
}
