//! Every Rust file of the workspace and of `fuzz/`, as text and as tokens. Tokens know no comments, and a
//! string is one of them, so that a rule finds what the compiler would.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

pub struct Source {
    /// From the root of the repository: `crates/ndp/src/search.rs`.
    pub path: String,
    pub text: String,
}

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

pub fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

pub fn sources() -> Vec<Source> {
    fn walk(dir: &Path, found: &mut Vec<Source>) {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && path.file_name().unwrap() != "target" {
                walk(&path, found);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let inside = path.strip_prefix(root()).unwrap().to_str().unwrap();
                found.push(Source { path: inside.to_owned(), text: read(&path) });
            }
        }
    }
    let mut found = Vec::new();
    walk(&root().join("crates"), &mut found);
    walk(&root().join("fuzz"), &mut found);
    found.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(found.len() > 100, "these are all sources");
    found
}

impl Source {
    /// The crate's folder: `crates/ndp`, `fuzz`.
    pub fn home(&self) -> &str {
        let depth = if self.path.starts_with("crates/") { 2 } else { 1 };
        let end = self.path.match_indices('/').nth(depth - 1).unwrap().0;
        &self.path[..end]
    }

    /// Whether this is part of what a program or a library is made of: no test, no benchmark.
    pub fn is_product(&self) -> bool {
        let inside = &self.path[self.home().len() + 1..];
        inside.starts_with("src/") && !inside.ends_with("/tests.rs") && !inside.contains("/tests/")
    }

    pub fn tokens(&self) -> TokenStream {
        self.text.parse().unwrap_or_else(|e| panic!("{}: {e}", self.path))
    }

    /// The words of the code, examples in the documentation included.
    pub fn words(&self) -> BTreeSet<String> {
        let mut words = BTreeSet::new();
        self.levels(|_, tokens| words.extend(tokens.iter().filter_map(|t| word(Some(t)))));
        let examples = self.text.lines().filter_map(|l| l.trim_start().strip_prefix("//"));
        for line in examples.filter(|l| l.contains("::")) {
            words.extend(line.split(|c: char| !c.is_alphanumeric() && c != '_').map(str::to_owned));
        }
        words
    }

    /// Calls `see` with the tokens of each pair of brackets, and with those of the file.
    pub fn levels(&self, mut see: impl FnMut(Delimiter, &[TokenTree])) {
        levels(Delimiter::None, self.tokens(), &mut see);
    }
}

pub fn levels(within: Delimiter, tokens: TokenStream, see: &mut dyn FnMut(Delimiter, &[TokenTree])) {
    let tokens: Vec<_> = tokens.into_iter().collect();
    see(within, &tokens);
    for token in tokens {
        if let TokenTree::Group(group) = token {
            levels(group.delimiter(), group.stream(), see);
        }
    }
}

/// The word that a token is.
pub fn word(token: Option<&TokenTree>) -> Option<String> {
    match token? {
        TokenTree::Ident(ident) => Some(ident.to_string()),
        _ => None,
    }
}

pub fn is_mark(token: Option<&TokenTree>, mark: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == mark)
}

/// What stands between these brackets, if `token` is such a pair.
pub fn between(token: Option<&TokenTree>, brackets: Delimiter) -> Option<TokenStream> {
    match token? {
        TokenTree::Group(group) if group.delimiter() == brackets => Some(group.stream()),
        _ => None,
    }
}
