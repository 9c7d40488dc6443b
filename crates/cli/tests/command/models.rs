//! `nearside models`, and a drive that is a file of one's own wherever a model is taken.

use std::fs;

use crate::fixture::{Ran, nearside};

fn models(words: &[&str]) -> Ran {
    Ran::from(nearside().arg("models").args(words).output().unwrap())
}

#[test]
fn a_preset_is_a_file_that_is_the_preset() {
    let list = models(&[]).good();
    assert!(list.lines().any(|line| line.starts_with("nand-p3700 ")), "{list}");
    assert_eq!(models(&["--json"]).json().len(), list.lines().count());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.toml");
    let text = models(&["nand-p3700"]).good();
    fs::write(&path, &text).unwrap();
    assert_eq!(models(&[path.to_str().unwrap()]).good(), text);
    let curve = |media: &str| {
        let mut command = nearside();
        command.args([
            "sim",
            "curve",
            "--capacity",
            "64MiB",
            "--loads",
            "2",
            "--depths",
            "1",
            "--percentile",
            "90",
        ]);
        let ran = Ran::from(
            command.args(["--media", media, "--json", "--out"]).arg(folder.path()).output().unwrap(),
        );
        ran.good().replace(media, "it")
    };
    assert_eq!(curve("nand-p3700,seed=4"), curve(&format!("{},seed=4", path.display())));
    let behind = format!("sas,drives=2/{}", path.display());
    assert_eq!(curve("sas,drives=2/nand-p3700"), curve(&behind));
}

#[test]
fn every_command_that_takes_a_model_takes_a_file() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("mine.toml"), models(&["optane-prototype"]).good()).unwrap();
    for words in [
        "bench run -d model:mine.toml:16MiB --runtime 20ms --rate 1k --out .",
        "act -d model:mine.toml:64MiB --simulated --runtime 50ms --most 2 --out .",
        "sim curve --media mine.toml,seed=3 --capacity 64MiB --loads 1 --depths 1 --percentile 90 --out .",
        "bench run -d delayed:1us:model:mine.toml:16MiB --runtime 20ms --iodepth 2 --out .",
        "models mine.toml --check",
    ] {
        let ran = Ran::from(nearside().current_dir(&folder).args(words.split(' ')).output().unwrap());
        assert!(ran.code == 0, "{words}: {} {}", ran.code, ran.err);
    }
}

#[test]
fn what_is_wrong_with_a_file_is_said_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let text = models(&["optane-p4800x"]).good();
    let line = text.lines().position(|line| line.starts_with("channels =")).unwrap() + 1;
    fs::write(folder.path().join("mine.toml"), text.replace("channels = 7", "channels = 0")).unwrap();
    for words in
        ["sim curve --media mine.toml", "bench run -d model:mine.toml:1GiB --iodepth 1", "models mine.toml"]
    {
        let ran = Ran::from(nearside().current_dir(&folder).args(words.split(' ')).output().unwrap());
        let says = format!("mine.toml: line {line}: 0 is not from 1 to 4096");
        assert!(ran.code == 2 && ran.err.contains(&says), "{words}: {} {}", ran.code, ran.err);
    }
    for (words, says) in
        [(&["none.toml"][..], "none.toml: No such file"), (&["nand"], "nand-p3700"), (&["--check"], "MODEL")]
    {
        let ran = models(words);
        assert!(ran.code == 2 && ran.err.contains(says), "{words:?}: {} {}", ran.code, ran.err);
    }
}

#[test]
fn a_check_says_what_is_not_as_the_sheet_says() {
    let ran = models(&["dram-gen2", "--check"]);
    assert!(ran.code == 0 && ran.text().lines().all(|line| line.ends_with("  shown")), "{}", ran.text());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("slow.toml");
    let text = models(&["dram-gen2"]).good();
    fs::write(&path, text.replace("command_ns = 500", "command_ns = 700")).unwrap();
    let ran = models(&[path.to_str().unwrap(), "--check", "--json"]);
    let said: Vec<_> = ran.json().iter().map(|line| line["as_said"].as_bool().unwrap()).collect();
    assert_eq!((ran.code, &said[..]), (1, &[true, true, false][..]));
}
