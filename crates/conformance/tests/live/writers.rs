//! Several writers at once on a mounted volume. Each has files of its own and a session of its own; after
//! each `fsync` it asks the drive what its file holds. At instants at which nothing is settled all of them
//! stand still, and the drive's view is compared with that of its bytes.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use nearside_fsrlib::{Ask, Digest, Error, Failure, Operation, Record, Session, SocketTransport};
use nearside_random::Rng;
use xxhash_rust::xxh3::xxh3_64;

use super::rig::{self, Rig};

/// How often a question is asked again that a change of the volume came in between.
const AGAIN: u32 = 100;
/// Files of a writer, about.
const FILES: usize = 24;
/// Furthest end of a file, in bytes.
const FURTHEST: u64 = 120_000;

/// What came of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Came {
    pub rounds: u64,
    /// Answers that were compared.
    pub answers: u64,
    /// Answers "changed during scan", after each of which the question was put again.
    pub changed: u64,
    pub snapshots: u64,
    /// Of a kernel that makes less durable than an fsync promises: answers that were not what was written,
    /// and were what its recovery of the drive's bytes gives.
    pub lost: u64,
}

/// How many work, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub seed: u64,
    pub writers: u64,
    /// Of each.
    pub rounds: u64,
    /// About so many.
    pub snapshots: u64,
    /// An fsync may return before what it is to make durable is: that of fast commits does where it meets
    /// another's that is under way (fs/ext4/fast_commit.c, `ext4_fc_commit`, EALREADY). Then all others stand
    /// still while the drive is asked. Where it says something else than was written, the kernel's recovery
    /// decides.
    pub loses: bool,
}

/// What the writers share.
struct Shared<'r> {
    plan: Plan,
    /// Who changes anything has a part of it; who has it whole stands alone.
    gate: RwLock<()>,
    /// Asked for behind the gate, where both are needed.
    rig: Mutex<&'r mut Rig>,
}

impl Shared<'_> {
    fn pass(&self) -> RwLockReadGuard<'_, ()> {
        self.gate.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn alone(&self) -> RwLockWriteGuard<'_, ()> {
        self.gate.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Compares the live view with that of the drive's bytes, at an instant.
    fn snapshot(&self) -> Result<(), String> {
        let _still = self.alone();
        let (bytes, live) = self.rig.lock().unwrap_or_else(PoisonError::into_inner).snapshot();
        let offline = rig::image(&bytes);
        let differs = live.iter().zip(&offline).find(|(live, offline)| live != offline);
        match differs {
            None if live.len() == offline.len() => Ok(()),
            _ => Err(format!("live {} records, snapshot {}: {differs:?}", live.len(), offline.len())),
        }
    }
}

struct Writer {
    /// Its folder on this machine, and on the volume.
    here: PathBuf,
    there: String,
    rng: Rng,
    serial: u64,
    /// What its files hold.
    files: BTreeMap<String, Vec<u8>>,
    session: Session<SocketTransport>,
    came: Came,
}

impl Writer {
    fn new(rig: &Rig, nr: u64, seed: u64) -> Writer {
        let there = format!("/writer-{nr}");
        let here = rig.mount().join(&there[1..]);
        fs::create_dir(&here).unwrap();
        let session = rig.another_session();
        let rng = Rng(seed.wrapping_mul(31).wrapping_add(nr));
        Writer { here, there, rng, serial: 0, files: BTreeMap::new(), session, came: Came::default() }
    }

    fn open(&self, name: &str) -> File {
        OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(self.here.join(name))
            .unwrap()
    }

    fn any(&mut self) -> Option<String> {
        let nr = self.rng.index(self.files.len().max(1));
        self.files.keys().nth(nr).cloned()
    }

    fn new_name(&mut self) -> String {
        self.serial += 1;
        format!("{}{}", self.serial, "-long".repeat(self.rng.index(20)))
    }

    /// Does one thing; the name that it was done to, and whether names have changed.
    fn work(&mut self) -> (String, bool) {
        let most = if self.rng.below(4) == 0 { 60_000 } else { 3_000 };
        let len = self.rng.below(most) as usize;
        let bytes = self.rng.bytes(len);
        let known = self.any();
        let kind = if self.files.len() > FILES { 7 } else { self.rng.below(8) };
        match (kind, known) {
            (0..2, _) | (_, None) => {
                let name = self.new_name();
                fs::write(self.here.join(&name), &bytes).unwrap();
                self.files.insert(name.clone(), bytes);
                (name, true)
            }
            (2..5, Some(name)) => {
                let at = self.rng.below(FURTHEST) as usize;
                self.open(&name).write_all_at(&bytes, at as u64).unwrap();
                // A write of nothing makes no file longer.
                if len > 0 {
                    let file = self.files.get_mut(&name).unwrap();
                    file.resize(file.len().max(at + len), 0);
                    file[at..at + len].copy_from_slice(&bytes);
                }
                (name, false)
            }
            (5, Some(name)) => {
                let len = self.rng.below(FURTHEST);
                self.open(&name).set_len(len).unwrap();
                self.files.get_mut(&name).unwrap().resize(len as usize, 0);
                (name, false)
            }
            (6, Some(name)) => {
                // Sometimes over another file.
                let to = if self.rng.below(2) == 0 { self.new_name() } else { self.any().unwrap() };
                fs::rename(self.here.join(&name), self.here.join(&to)).unwrap();
                let bytes = self.files.remove(&name).unwrap();
                self.files.insert(to.clone(), bytes);
                (to, true)
            }
            (_, Some(name)) => {
                fs::remove_file(self.here.join(&name)).unwrap();
                self.files.remove(&name);
                (name, true)
            }
        }
    }

    fn settle(&self, name: &str, names: bool) {
        if self.files.contains_key(name) {
            self.open(name).sync_all().unwrap();
        }
        if names {
            File::open(&self.here).unwrap().sync_all().unwrap();
        }
    }

    fn compare(&mut self, name: &str, shared: &Shared<'_>) -> Result<(), String> {
        let path = format!("{}/{name}", self.there);
        let said = drive(&mut self.session, &path, &mut self.came.changed)?;
        let is = self.files.get(name).map(|bytes| xxh3_64(bytes).to_be_bytes().to_vec());
        self.came.answers += 1;
        if said == is {
            return Ok(());
        }
        // A copy that is taken while others write is of no instant.
        let _still = (!shared.plan.loses).then(|| shared.alone());
        let recovered = shared.rig.lock().unwrap_or_else(PoisonError::into_inner).recovered_hash(&path);
        if shared.plan.loses && said == recovered {
            self.came.lost += 1;
            return Ok(());
        }
        let here = fs::read(self.here.join(name)).ok().map(|bytes| xxh3_64(&bytes).to_be_bytes());
        let written = format!("written {is:x?}, mount {here:x?}");
        Err(format!("{path}: drive {said:x?}, {written}, after recovery {recovered:x?}"))
    }

    fn round(&mut self, shared: &Shared<'_>) -> Result<(), String> {
        let open = shared.pass();
        let (name, names) = self.work();
        drop(open);
        let open = shared.pass();
        self.settle(&name, names);
        drop(open);
        let still = shared.plan.loses.then(|| shared.alone());
        self.compare(&name, shared)?;
        if let Some(other) = self.any() {
            self.compare(&other, shared)?;
        }
        drop(still);
        if self.rng.below(shared.plan.writers * shared.plan.rounds) < shared.plan.snapshots {
            shared.snapshot()?;
            self.came.snapshots += 1;
        }
        self.came.rounds += 1;
        Ok(())
    }

    fn rounds(&mut self, shared: &Shared<'_>) -> Result<Came, String> {
        for round in 0..shared.plan.rounds {
            self.round(shared).map_err(|wrong| format!("round {round}: {wrong}"))?;
        }
        Ok(self.came)
    }
}

/// What the drive says that a file holds; `None`: there is no such file.
fn drive(
    session: &mut Session<SocketTransport>,
    path: &str,
    changed: &mut u64,
) -> Result<Option<Vec<u8>>, String> {
    for _ in 0..AGAIN {
        let mut found = None;
        let mut failed = None;
        let ask = Ask::path(path, Operation::Checksum(Digest::Xxh3));
        let answer = session.stream(&ask, |record| {
            match record {
                Record::Digest { value, .. } => found = Some(value.into_owned()),
                Record::Failed { failure, .. } => failed = Some(failure),
                _ => {}
            }
            ControlFlow::Continue(())
        });
        let failed = match answer {
            Err(Error::Refused(failure)) => Some(failure),
            Err(error) => return Err(format!("{path}: {error}")),
            Ok(_) => failed,
        };
        match failed {
            None => return found.ok_or(format!("{path}: no checksum")).map(Some),
            Some(Failure::NotFound) => return Ok(None),
            Some(Failure::ChangedDuringScan) => *changed += 1,
            Some(other) => return Err(format!("{path}: {other:?}")),
        }
    }
    Err(format!("{path}: changed {AGAIN} times while it was read"))
}

/// Lets writers work.
pub fn run(rig: &mut Rig, plan: Plan) -> Result<Came, String> {
    let mut all: Vec<Writer> = (0..plan.writers).map(|nr| Writer::new(rig, nr, plan.seed)).collect();
    rig.sync();
    let shared = Shared { plan, gate: RwLock::new(()), rig: Mutex::new(rig) };
    let mut came = Came::default();
    std::thread::scope(|scope| {
        let at_work: Vec<_> = all.iter_mut().map(|writer| scope.spawn(|| writer.rounds(&shared))).collect();
        for writer in at_work {
            let one = writer.join().unwrap()?;
            came.rounds += one.rounds;
            came.answers += one.answers;
            came.changed += one.changed;
            came.snapshots += one.snapshots;
            came.lost += one.lost;
        }
        shared.snapshot()?;
        came.snapshots += 1;
        Ok(came)
    })
}
