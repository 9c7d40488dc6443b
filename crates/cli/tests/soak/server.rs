//! The program that serves, and what it holds.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::raw::NQN;

/// A running `nearside`, ended when dropped.
pub struct Program {
    pub child: Child,
    said: PathBuf,
    out: BufReader<ChildStdout>,
}

/// `nearside serve`.
pub struct Served {
    pub program: Program,
    control: PathBuf,
    pub address: SocketAddr,
}

/// What a process keeps when it is at rest.
#[derive(Clone, Copy, Debug)]
pub struct Kept {
    pub descriptors: usize,
    pub resident: u64,
}

pub fn nearside() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nearside"));
    command.env_remove("NEARSIDE_DRIVE").stdin(Stdio::null());
    command
}

impl Program {
    /// What it says on standard error goes to the file `said`.
    pub fn start(command: &mut Command, folder: &Path) -> Program {
        let said = folder.join("said");
        command.stdout(Stdio::piped()).stderr(File::create(&said).unwrap());
        let mut child = command.spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        Program { child, said, out }
    }

    /// The next line that it prints.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn proc(&self, name: &str) -> PathBuf {
        format!("/proc/{}/{name}", self.child.id()).into()
    }

    pub fn kept(&self) -> Kept {
        let memory = std::fs::read_to_string(self.proc("statm")).unwrap();
        let pages: u64 = memory.split_whitespace().nth(1).unwrap().parse().unwrap();
        let resident = pages * rustix::param::page_size() as u64;
        Kept { descriptors: std::fs::read_dir(self.proc("fd")).unwrap().count(), resident }
    }

    /// CPU time of all its threads, those that have ended among them.
    fn cpu(&self) -> Duration {
        let text = std::fs::read_to_string(self.proc("stat")).unwrap();
        // The name, in parentheses, may hold anything.
        let fields: Vec<&str> = text.rsplit(')').next().unwrap().split_whitespace().collect();
        let ticks: u64 = fields[11..13].iter().map(|field| field.parse::<u64>().unwrap()).sum();
        Duration::from_secs(ticks) / rustix::param::clock_ticks_per_second() as u32
    }

    /// At rest it does nothing: what it spends is counted by its own CPU time, which no other load changes.
    pub fn rests(&self) {
        let (cpu, begun) = (self.cpu(), Instant::now());
        std::thread::sleep(Duration::from_secs(2));
        let (spent, passed) = (self.cpu() - cpu, begun.elapsed());
        assert!(spent < passed / 10, "at rest it spent {spent:?} of {passed:?}");
    }

    /// By SIGTERM: the exit code, and all that it said.
    pub fn stop(mut self) -> (Option<i32>, String) {
        assert!(Command::new("kill").arg(self.child.id().to_string()).status().unwrap().success());
        (self.child.wait().unwrap().code(), std::fs::read_to_string(&self.said).unwrap())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Served {
    pub fn start(image: &Path, folder: &Path) -> Served {
        let control = folder.join("control");
        let mut server = nearside();
        server
            .args(["serve", "--listen", "127.0.0.1:0", "--subsystem", NQN, "--trust", "--store"])
            .arg(image)
            .arg("--control")
            .arg(&control);
        let mut program = Program::start(&mut server, folder);
        let line = program.line();
        let port = line.split_whitespace().skip_while(|word| *word != "-s").nth(1);
        let port: u16 = port.unwrap_or_else(|| panic!("{line:?}")).parse().unwrap();
        Served { program, control, address: ([127, 0, 0, 1], port).into() }
    }

    pub fn drive(&self) -> String {
        format!("nvme+tcp://{}/{NQN}/1", self.address)
    }

    fn status(&self) -> Value {
        let asked = nearside().args(["status", "--json", "--control"]).arg(&self.control).output().unwrap();
        assert!(asked.status.success(), "{asked:?}");
        serde_json::from_slice(&asked.stdout).unwrap()
    }

    /// Waits until no host is connected, near-data work holds nothing and no more than `most`
    /// descriptors are open; what it keeps then.
    pub fn until_nothing_is_left(&self, most: Option<usize>) -> Kept {
        let begun = Instant::now();
        loop {
            let status = self.status();
            let held = &status["subsystems"][0]["namespaces"][0]["near_data"];
            let numbers = ["tasks", "reads", "buffers", "tags"].map(|what| held[what].as_u64().unwrap());
            let kept = self.program.kept();
            if status["connections"] == 0
                && status["hosts"].as_array().unwrap().is_empty()
                && numbers == [0; 4]
                && most.is_none_or(|most| kept.descriptors <= most)
            {
                return kept;
            }
            assert!(begun.elapsed() < Duration::from_secs(120), "{kept:?} {status:#}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// How long near-data work held the threads that serve, at a time.
    pub fn slices(&self) -> String {
        self.status()["subsystems"][0]["namespaces"][0]["near_data"]["slices"].to_string()
    }
}
