//! What the help of a program owes: whoever copies an example has all of it.

use std::process::Command;

use crate::volume::must;

/// That the lines below "Examples:" in the help of a program are the same at each width, and begin so.
/// Panics where they are not.
pub fn examples_are_whole(program: &str, begin: &str) {
    let examples = |columns: &str| -> Vec<String> {
        let help = must(Command::new(program).arg("--help").env("COLUMNS", columns)).stdout;
        let help = String::from_utf8_lossy(&help).into_owned();
        let below = help.lines().skip_while(|line| *line != "Examples:").skip(1);
        below.take_while(|line| !line.is_empty()).map(str::to_owned).collect()
    };
    let narrow = examples("40");
    assert!(!narrow.is_empty() && narrow.iter().all(|line| line.starts_with(begin)), "{narrow:?}");
    assert_eq!(narrow, examples("120"));
}
