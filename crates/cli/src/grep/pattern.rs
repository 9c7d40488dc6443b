//! What a pattern's text says before the drive has it.

use regex_syntax::ast::parse::Parser;
use regex_syntax::ast::{Ast, ClassSetItem, Visitor, visit};

use crate::failure::Failure;

/// What of a pattern counts for -S and -P.
#[derive(Default)]
struct Letters {
    any: bool,
    upper: bool,
    /// A repetition of a repetition, as possessive ones are written.
    twice: bool,
}

impl Letters {
    fn letter(&mut self, letter: char) {
        self.any = true;
        self.upper |= letter.is_uppercase();
    }
}

impl Visitor for &mut Letters {
    type Output = ();
    type Err = ();

    fn finish(self) -> Result<(), ()> {
        Ok(())
    }

    fn visit_pre(&mut self, ast: &Ast) -> Result<(), ()> {
        match ast {
            Ast::Literal(literal) => self.letter(literal.c),
            Ast::Repetition(repetition) => self.twice |= matches!(*repetition.ast, Ast::Repetition(_)),
            _ => {}
        }
        Ok(())
    }

    fn visit_class_set_item_pre(&mut self, item: &ClassSetItem) -> Result<(), ()> {
        match item {
            ClassSetItem::Literal(literal) => self.letter(literal.c),
            ClassSetItem::Range(range) => {
                self.letter(range.start.c);
                self.letter(range.end.c);
            }
            _ => {}
        }
        Ok(())
    }
}

/// Whether case is to be ignored, since there are letters in the patterns and none is a capital.
pub fn is_low(patterns: &[Vec<u8>], fixed: bool) -> bool {
    let mut letters = Letters::default();
    for pattern in patterns {
        let text = String::from_utf8_lossy(pattern);
        if fixed {
            text.chars().for_each(|c| letters.letter(c));
        } else if let Ok(ast) = Parser::new().parse(&text) {
            // It has no errors of its own.
            let _ = visit(&ast, &mut letters);
        }
    }
    letters.any && !letters.upper
}

/// Whether patterns that are meant for PCRE mean the same here.
pub fn of_perl(patterns: &[Vec<u8>]) -> Result<(), Failure> {
    for pattern in patterns {
        let text = String::from_utf8_lossy(pattern);
        let mut letters = Letters::default();
        let why = match Parser::new().parse(&text) {
            Ok(ast) => {
                let _ = visit(&ast, &mut letters);
                if !letters.twice {
                    continue;
                }
                "possessive repetitions are not supported".to_owned()
            }
            Err(error) => error.kind().to_string(),
        };
        return Err(Failure::Message(format!(
            "-P: {text}: {why}. Searches take time by the length of a line alone: Perl's patterns are had but for \
             look-around, backreferences, atomic groups and possessive repetitions. With these: nearside cat ... | \
             grep -P ..."
        )));
    }
    Ok(())
}
