//! `nearside completions`: what completes the command's words in a shell, from the definitions of its own.

use std::io::Write;

use clap::{Args, ValueEnum};
use clap_complete::Shell;

use crate::failure::Outcome;
use crate::out::Out;

const EXAMPLES: &str = "\
Examples:
  nearside completions bash > nearside.bash         # ~/.local/share/bash-completion/completions/nearside
  nearside completions zsh > _nearside              # in a folder of $fpath
  nearside completions fish > nearside.fish         # ~/.config/fish/completions/nearside.fish

`make install` puts them where these shells look.";

/// Print what completes this command's words in a shell
#[derive(Args)]
#[command(after_long_help = crate::args::flowing(EXAMPLES))]
pub struct CompletionsArgs {
    /// Which shell
    #[arg(value_enum, value_name = "SHELL")]
    shell: Known,
}

/// A shell.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Known {
    Bash,
    Zsh,
    Fish,
}

pub fn run(args: CompletionsArgs) -> Outcome {
    let shell = match args.shell {
        Known::Bash => Shell::Bash,
        Known::Zsh => Shell::Zsh,
        Known::Fish => Shell::Fish,
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut crate::definitions(), "nearside", &mut script);
    let mut out = Out::new();
    out.write_all(&script)?;
    out.flush()?;
    Ok(0)
}
