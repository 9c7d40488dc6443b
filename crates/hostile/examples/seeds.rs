//! Writes the seeds of every fuzz target:
//! `cargo run -p nearside-hostile --example seeds -- FOLDER` makes `FOLDER/TARGET/seed-N`.

use std::path::PathBuf;

use nearside_hostile::TARGETS;

fn main() -> std::io::Result<()> {
    let folder = PathBuf::from(std::env::args_os().nth(1).unwrap_or_else(|| "fuzz/corpus".into()));
    for target in TARGETS {
        let of_target = folder.join(target.name);
        std::fs::create_dir_all(&of_target)?;
        let seeds = (target.seeds)();
        for (nr, seed) in seeds.iter().enumerate() {
            std::fs::write(of_target.join(format!("seed-{nr:03}")), seed)?;
        }
        println!("{}: {} seeds", target.name, seeds.len());
    }
    Ok(())
}
