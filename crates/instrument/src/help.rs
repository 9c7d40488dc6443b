//! Texts for the help of programs: paragraphs wrap, examples are whole at any width.

/// A space at which clap breaks no line, in help alone: [`as_typed`] makes it a space again.
const FIXED: &str = "\u{a0}";

/// A text of help whose paragraphs are a line each, so that they wrap at any width. Lines that are set in,
/// and those that end in a colon, stay as they are. Examples do not wrap at all: whoever copies one has it
/// whole.
pub fn flowing(text: &str) -> String {
    let mut flowing = String::new();
    let (mut open, mut examples) = (false, false);
    for line in text.lines() {
        let own = line.is_empty() || line.starts_with(' ') || line.ends_with(':');
        if !flowing.is_empty() {
            flowing.push(if open && !own { ' ' } else { '\n' });
        }
        match examples && line.starts_with(' ') {
            true => flowing.push_str(&line.replace(' ', FIXED)),
            false => flowing.push_str(line),
        }
        open = !own;
        examples = line == "Examples:" || examples && !line.is_empty();
    }
    flowing
}

/// A text of help with its examples as they are typed.
pub fn as_typed(help: &str) -> String {
    help.replace(FIXED, " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paragraphs_flow_and_examples_do_not() {
        let text = "Examples:\n  do  this   # well\n\nOne\ntwo.\nThree:\n  a table\nfour";
        let flowing = flowing(text);
        assert_eq!(flowing.lines().nth(1), Some(&*"~~do~~this~~~#~well".replace('~', FIXED)));
        let typed = "Examples:\n  do  this   # well\n\nOne two.\nThree:\n  a table\nfour";
        assert_eq!(as_typed(&flowing), typed);
    }
}
