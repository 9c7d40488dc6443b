//! PostgreSQL by its own pgbench (FAST'12 3.5: "many hours of TPC-C"), with pgbench's own load, which is
//! TPC-B's, or one after TPC-C ([`Workload`]); data checksums on. And a ledger of what it acknowledged, which
//! must be there after anything was killed.

mod workload;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nearside_random::Rng;
use tempfile::TempDir;

use crate::ending::goes_on;
use crate::program::{missing, named, number_after, said};
use crate::wait::Patience;
use crate::{Drive, Failure, Kind, Volume};

pub use workload::Workload;

/// The user that the server runs as: it refuses root.
const USER: &str = "postgres";
/// Where Debian keeps each version's own programs.
const VERSIONS: &str = "/usr/lib/postgresql";

/// What this machine lacks for it.
pub fn lacks() -> Option<String> {
    missing(&["pgbench", "psql", "runuser"]).or_else(|| {
        bin().is_none().then(|| format!("no server of PostgreSQL in {VERSIONS} (package postgresql)"))
    })
}

/// The newest version's programs.
fn bin() -> Option<PathBuf> {
    let versions = std::fs::read_dir(VERSIONS).ok()?.filter_map(Result::ok);
    let number = |path: &Path| path.file_name()?.to_str()?.parse::<u32>().ok();
    let newest = versions.map(|entry| entry.path()).filter(|path| path.join("bin/initdb").exists());
    newest.max_by_key(|path| number(path)).map(|path| path.join("bin"))
}

/// A database cluster on a volume, running or not. It is stopped with this value.
pub struct Cluster {
    bin: PathBuf,
    data: PathBuf,
    /// Sockets, logs, and what pgbench logs: not on the drive.
    place: TempDir,
    server: Option<Child>,
}

/// What a run of pgbench came to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Transactions {
    /// Committed per second.
    pub per_second: f64,
    /// Mean response time in milliseconds.
    pub mean_ms: f64,
    /// How many.
    pub count: f64,
}

impl Cluster {
    /// Makes a cluster in a volume's folder `pgdata`, with checksums over its pages, and starts it.
    ///
    /// # Errors
    /// What initdb said, or the server.
    pub fn make(volume: &Volume) -> Result<Cluster, Failure> {
        let cluster = Cluster::at(volume)?;
        std::fs::create_dir(&cluster.data)?;
        said(Command::new("chown").arg(USER).arg(&cluster.data))?;
        let mut initdb = cluster.own("initdb");
        initdb.args(["--data-checksums", "--auth=trust", "--encoding=UTF8", "--locale=C", "--pgdata"]);
        said(initdb.arg(&cluster.data))?;
        cluster.started()
    }

    /// Starts the cluster that is on the volume; it recovers what it has to.
    ///
    /// # Errors
    /// What the server said.
    pub fn open(volume: &Volume) -> Result<Cluster, Failure> {
        Cluster::at(volume)?.started()
    }

    fn at(volume: &Volume) -> Result<Cluster, Failure> {
        let Some(bin) = bin() else { return Err(lacks().unwrap_or_default().into()) };
        let place = TempDir::with_prefix("nearside-postgres-")?;
        said(Command::new("chown").arg(USER).arg(place.path()))?;
        Ok(Cluster { bin, data: volume.path("pgdata"), place, server: None })
    }

    /// A program of the server's own, as its user.
    fn own(&self, name: &str) -> Command {
        let mut command = named("runuser").unwrap_or_else(|_| Command::new("runuser"));
        command.args(["-u", USER, "--"]).arg(self.bin.join(name)).current_dir(self.place.path());
        command
    }

    /// A client's program, as the server's user, over its socket.
    fn client(&self, name: &str) -> Command {
        let mut command = self.own(name);
        command.env("PGHOST", self.place.path()).env("PGUSER", USER).env("PGDATABASE", USER);
        command
    }

    fn started(mut self) -> Result<Cluster, Failure> {
        let log = self.place.path().join("server.log");
        let out = std::fs::File::create(&log)?;
        let mut server = self.own("postgres");
        server.arg("-D").arg(&self.data).arg("-k").arg(self.place.path());
        server.args(["-c", "listen_addresses=", "-c", "shared_buffers=32MB", "-c", "fsync=on"]);
        server.args([
            "-c",
            "full_page_writes=on",
            "-c",
            "synchronous_commit=on",
            "-c",
            "logging_collector=off",
        ]);
        server.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out);
        goes_on()?;
        let mut server = server.spawn()?;
        let mut tries = Patience::seconds(120);
        loop {
            let ready = self.client("pg_isready").stdout(Stdio::null()).stderr(Stdio::null()).status()?;
            if ready.success() {
                break;
            }
            if server.try_wait()?.is_some() || !tries.wait() {
                let _ = server.kill();
                let words = std::fs::read_to_string(&log).unwrap_or_default();
                return Err(format!("the server did not start: {}", words.trim()).into());
            }
        }
        self.server = Some(server);
        Ok(self)
    }

    /// The answer to a statement: rows by lines, columns by `|`.
    ///
    /// # Errors
    /// What psql said.
    pub fn ask(&self, statement: &str) -> Result<String, Failure> {
        let text = said(self.client("psql").args(["-XqAt", "-v", "ON_ERROR_STOP=1", "-c", statement]))?;
        Ok(text.trim().to_owned())
    }

    /// Makes the tables, of `scale` branches (of 100,000 accounts) or warehouses, and an empty ledger.
    ///
    /// # Errors
    /// What pgbench or psql said.
    pub fn fill(&self, workload: Workload, scale: u32) -> Result<(), Failure> {
        match workload.tables(scale) {
            Some(statements) => drop(self.ask(&statements)?),
            None => {
                let mut pgbench = self.client("pgbench");
                said(pgbench.args(["--initialize", "--quiet", "--scale"]).arg(scale.to_string()))?;
            }
        }
        self.ask("create table ledger (client int not null, entry bigserial primary key)").map(drop)
    }

    /// pgbench with the workload's transactions, for so many clients and seconds.
    fn pgbench(&self, load: &Load) -> Result<Command, Failure> {
        let Load { workload, scale, clients, seconds } = *load;
        let mut pgbench = self.client("pgbench");
        for (nth, (weight, script)) in workload.scripts().into_iter().enumerate() {
            let path = self.place.path().join(format!("{nth}.sql"));
            std::fs::write(&path, script)?;
            pgbench.arg(format!("--file={}@{weight}", path.display()));
        }
        pgbench.args(["--no-vacuum".to_owned(), format!("--scale={scale}"), format!("--client={clients}")]);
        pgbench.args([format!("--jobs={}", clients.min(2)), format!("--time={seconds}")]);
        Ok(pgbench)
    }

    /// Transactions by so many clients for so many seconds.
    ///
    /// # Errors
    /// What pgbench said; a transaction that failed.
    pub fn run(&self, load: &Load) -> Result<Transactions, Failure> {
        transactions_of(&said(&mut self.pgbench(load)?)?)
    }

    /// Starts clients that write into the ledger, each commit logged once it was acknowledged.
    ///
    /// # Errors
    /// The system's.
    pub fn write_ledger(&self, load: &Load) -> Result<Ledger, Failure> {
        // Logs of an earlier run are another's.
        for old in logs(self.place.path())? {
            std::fs::remove_file(old)?;
        }
        let mut pgbench = self.pgbench(load)?;
        pgbench.args(["--log", "--log-prefix=acknowledged"]);
        let child = pgbench.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        Ok(Ledger { child, place: self.place.path().to_owned(), clients: load.clients })
    }

    /// How many entries each of the clients has in the ledger.
    ///
    /// # Errors
    /// What psql said.
    pub fn ledger(&self, clients: u32) -> Result<Vec<u64>, Failure> {
        let rows = self.ask("select client, count(*) from ledger group by client order by client")?;
        let mut found = vec![0; clients as usize];
        for row in rows.lines() {
            let numbers =
                row.split_once('|').and_then(|(c, n)| Some((c.parse::<usize>().ok()?, n.parse().ok()?)));
            let (client, entries) = numbers.ok_or_else(|| format!("the ledger's row {row:?}"))?;
            *found.get_mut(client).ok_or_else(|| format!("the ledger has a client {client}"))? = entries;
        }
        Ok(found)
    }

    /// Looks for what the workload's rules do not allow.
    ///
    /// # Errors
    /// What was found to be wrong.
    pub fn consistent(&self, workload: Workload) -> Result<(), Failure> {
        let wrong = self.ask(workload.wrong())?;
        match wrong.is_empty() {
            true => Ok(()),
            false => Err(format!("{workload:?}: what has to hold does not: {wrong}").into()),
        }
    }

    /// Holds the cluster to the workload's rules and its own: every page by pg_amcheck (heaps against indexes
    /// too); then it is stopped, and the checksum of every page is verified.
    ///
    /// # Errors
    /// What was found to be wrong.
    pub fn verify(mut self, workload: Workload) -> Result<(), Failure> {
        self.consistent(workload)?;
        self.ask("create extension if not exists amcheck")?;
        said(self.client("pg_amcheck").args(["--heapallindexed", USER]))?;
        self.stop()?;
        said(self.own("pg_checksums").args(["--check", "--pgdata"]).arg(&self.data)).map(drop)
    }

    /// Stops the server in order.
    fn stop(&mut self) -> Result<(), Failure> {
        let Some(mut server) = self.server.take() else { return Ok(()) };
        let stopped = said(self.own("pg_ctl").args(["stop", "--mode=fast", "--pgdata"]).arg(&self.data));
        if stopped.is_err() {
            let _ = server.kill();
        }
        server.wait()?;
        stopped.map(drop)
    }

    /// Kills the server and all of its processes at once (SIGKILL).
    ///
    /// # Errors
    /// The system's.
    pub fn kill(&mut self) -> Result<(), Failure> {
        let Some(mut server) = self.server.take() else { return Ok(()) };
        // The server is runuser's child, and its processes are sessions of their own: all that have the data
        // as their folder.
        for process in processes_in(&self.data)? {
            let _ =
                Command::new("/bin/kill").args(["-9", &process.to_string()]).stderr(Stdio::null()).status();
        }
        server.wait()?;
        // A postmaster that is gone leaves its lock's file, which the next one judges by its number.
        let mut tries = Patience::seconds(20);
        while !processes_in(&self.data)?.is_empty() && tries.wait() {}
        Ok(())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if self.server.is_some() {
            let _ = self.kill();
        }
    }
}

/// What clients do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Which transactions.
    pub workload: Workload,
    /// What the tables were made with.
    pub scale: u32,
    /// Clients at a time.
    pub clients: u32,
    /// How long.
    pub seconds: u32,
}

/// Clients that write into the ledger.
pub struct Ledger {
    child: Child,
    place: PathBuf,
    clients: u32,
}

impl Ledger {
    /// Bytes that the logs of what was acknowledged have so far; pgbench writes them in pieces.
    ///
    /// # Errors
    /// The system's.
    fn logged(&self) -> Result<u64, Failure> {
        let mut bytes = 0;
        for log in logs(&self.place)? {
            bytes += std::fs::metadata(log)?.len();
        }
        Ok(bytes)
    }

    /// Waits for the clients to end: their time is over, or the server has gone. How many commits each of
    /// them had acknowledged.
    ///
    /// # Errors
    /// The system's; a log that cannot be read.
    pub fn acknowledged(mut self) -> Result<Vec<u64>, Failure> {
        self.child.wait()?;
        let mut each = vec![0u64; self.clients as usize];
        for log in logs(&self.place)? {
            for line in std::fs::read_to_string(&log)?.lines() {
                // client_id transaction_no time script_no time_epoch time_us
                let client = line.split(' ').next().and_then(|word| word.parse::<usize>().ok());
                let count = client.and_then(|client| each.get_mut(client));
                *count.ok_or_else(|| format!("{}: {line:?}", log.display()))? += 1;
            }
        }
        Ok(each)
    }
}

/// What was killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Killed {
    /// The server, with all of its processes.
    Server,
    /// The drive, below a running server.
    Drive,
}

/// A kill, and what was there after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crash {
    /// Of what.
    pub killed: Killed,
    /// Commits that were acknowledged before it.
    pub acknowledged: u64,
    /// Those of them and others in flight that were there after recovery.
    pub found: u64,
}

/// Where a cluster is killed again and again.
pub struct Rounds<'a> {
    /// The `nearside` program.
    pub program: &'a Path,
    /// What holds the drive's bytes: it has to keep them while no drive is there.
    pub store: &'a str,
    /// The file system.
    pub kind: Kind,
    /// How often something is killed, the server and the drive in turn.
    pub rounds: u32,
    /// What is done meanwhile, for so many seconds at most.
    pub load: Load,
    /// Of the moments.
    pub seed: u64,
    /// Is told of each.
    pub say: &'a dyn Fn(&Crash),
}

impl Rounds<'_> {
    /// Kills the server, or the drive below it, at random moments under load. After each recovery every
    /// commit that was acknowledged has to be in the ledger, of others at most the one of each client that
    /// was in flight, and the workload's rules have to hold; at the end the cluster is held to its own, too
    /// ([`Cluster::verify`]).
    ///
    /// # Errors
    /// A commit that was lost, or one that nobody made; what is wrong with the cluster; what could not be
    /// started.
    pub fn run(&self) -> Result<Vec<Crash>, Failure> {
        let Load { workload, scale, clients, seconds } = self.load;
        let mut rng = Rng(self.seed);
        let mut drive = Drive::attach(self.program, self.store, &[])?;
        let mut volume = Volume::make(&drive, self.kind)?;
        let mut cluster = Cluster::make(&volume)?;
        cluster.fill(workload, scale)?;
        let mut crashes = Vec::new();
        for round in 0..self.rounds {
            let before = cluster.ledger(clients)?;
            let mut ledger = cluster.write_ledger(&self.load)?;
            let enough = 4096 * (1 + rng.below(8));
            let mut tries = Patience::seconds(seconds);
            while ledger.logged()? < enough && ledger.child.try_wait()?.is_none() && tries.wait() {}
            let killed = if round % 2 == 0 { Killed::Server } else { Killed::Drive };
            if killed == Killed::Drive {
                drive.kill()?;
            }
            cluster.kill()?;
            let acknowledged = ledger.acknowledged()?;
            if killed == Killed::Drive {
                // In this order: what lies on the drive goes before it.
                drop(volume);
                drop(drive);
                drive = Drive::attach(self.program, self.store, &[])?;
                volume = Volume::mount(&drive)?;
            }
            cluster = Cluster::open(&volume)?;
            let after = cluster.ledger(clients)?;
            crashes.push(judged(killed, &before, &acknowledged, &after)?);
            crashes.last().into_iter().for_each(self.say);
            cluster.consistent(workload)?;
        }
        cluster.verify(workload)?;
        drop(volume);
        Ok(crashes)
    }
}

/// Whether what is in the ledger is what was acknowledged, client by client.
fn judged(killed: Killed, before: &[u64], acknowledged: &[u64], after: &[u64]) -> Result<Crash, Failure> {
    let mut crash = Crash { killed, acknowledged: 0, found: 0 };
    for (client, ((before, acknowledged), after)) in before.iter().zip(acknowledged).zip(after).enumerate() {
        let found = after.checked_sub(*before).ok_or("the ledger has fewer entries than before")?;
        if !(*acknowledged..=acknowledged + 1).contains(&found) {
            return Err(format!(
                "{killed:?} was killed: client {client} had {acknowledged} commits acknowledged, and {found} are there"
            )
            .into());
        }
        crash.acknowledged += acknowledged;
        crash.found += found;
    }
    Ok(crash)
}

fn logs(place: &Path) -> Result<Vec<PathBuf>, Failure> {
    let entries = std::fs::read_dir(place)?.filter_map(Result::ok).map(|entry| entry.path());
    let is_log =
        |path: &PathBuf| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with("acknowledged"));
    Ok(entries.filter(is_log).collect())
}

/// The processes whose working folder is `data`.
fn processes_in(data: &Path) -> Result<Vec<u32>, Failure> {
    let data = std::fs::canonicalize(data).unwrap_or_else(|_| data.to_owned());
    let of = |entry: std::fs::DirEntry| {
        let process = entry.file_name().to_str()?.parse().ok()?;
        (std::fs::read_link(entry.path().join("cwd")).ok()? == data).then_some(process)
    };
    Ok(std::fs::read_dir("/proc")?.filter_map(Result::ok).filter_map(of).collect())
}

/// From pgbench's report.
fn transactions_of(report: &str) -> Result<Transactions, Failure> {
    let of = |before: &str| {
        number_after(report, before).ok_or_else(|| format!("pgbench: no {before:?} in its report:\n{report}"))
    };
    if of("number of failed transactions: ")? > 0.0 {
        return Err(format!("pgbench: transactions failed:\n{report}").into());
    }
    Ok(Transactions {
        per_second: of("tps = ")?,
        mean_ms: of("latency average = ")?,
        count: of("number of transactions actually processed: ")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = "transaction type: <builtin: TPC-B (sort of)>
number of transactions actually processed: 4217
number of failed transactions: 0 (0.000%)
latency average = 2.372 ms
initial connection time = 5.1 ms
tps = 1686.340925 (without initial connection time)
";

    #[test]
    fn a_lost_commit_and_a_made_up_one_are_told() {
        let judge =
            |acknowledged: u64, after: u64| judged(Killed::Drive, &[5, 7], &[3, acknowledged], &[8, after]);
        assert_eq!(judge(2, 9).unwrap(), Crash { killed: Killed::Drive, acknowledged: 5, found: 5 });
        assert_eq!(judge(2, 10).unwrap().found, 6);
        let lost = judge(2, 8).unwrap_err().to_string();
        assert!(lost.contains("client 1 had 2 commits acknowledged, and 1 are there"), "{lost}");
        assert!(judge(2, 11).is_err());
        assert!(judge(0, 6).is_err());
    }

    #[test]
    fn a_report_is_read_as_pgbench_writes_it() {
        let found = transactions_of(REPORT).unwrap();
        assert_eq!(found, Transactions { per_second: 1686.340925, mean_ms: 2.372, count: 4217.0 });
        assert!(
            transactions_of(&REPORT.replace("failed transactions: 0", "failed transactions: 2")).is_err()
        );
        assert!(transactions_of(&REPORT.replace("tps = ", "")).is_err());
    }
}
