//! Namespaces that become longer or shorter: by a command, or since what their stores lie in has.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nearside_clock::{Clock, TscClock};
use nearside_dma::file;
use nearside_embedded::{AnyStore, Drive};
use nearside_fsrlib::{Ask, Operation, Record, Target};
use nearside_store::Backing;

use super::drive::AnyTarget;

/// How often stores are looked at.
const EVERY: Duration = Duration::from_secs(1);
/// How long what is in flight beyond a new end may take to end.
const PATIENCE: Duration = Duration::from_secs(10);

/// Makes a namespace so many bytes long; `None`: as long as what its store lies in has become. Its bytes.
/// `force`: also where something may lie beyond the new end.
///
/// # Errors
/// In words; then it is as long as before.
pub fn resize(
    target: &AnyTarget,
    nqn: &str,
    (nsid, store): (u32, &str),
    bytes: Option<u64>,
    force: bool,
) -> Result<u64, String> {
    let none = || format!("there is no namespace {nsid}");
    let offer = target.offers().into_iter().find(|offer| offer.nqn == nqn).ok_or_else(none)?;
    let namespace = offer.subsystem.namespace(nsid).ok_or_else(none)?;
    let failed = |why: String| format!("namespace {nsid} of {nqn}: {why}");
    if namespace.store().write_log().is_some() {
        return Err(failed("its write log is of a store that keeps its length".into()));
    }
    let block = 1u64 << namespace.lba_shift();
    if let Some(bytes) = bytes
        && !bytes.is_multiple_of(block)
    {
        return Err(failed(format!("{bytes} bytes are not whole blocks of {block}")));
    }
    // Looked at before anything is refused to a host, and again when none can write there any more.
    let fits = || {
        let Some(bytes) = bytes.filter(|_| !force) else { return Ok(()) };
        match used(store)? {
            end if end > bytes => Err(format!(
                "what is on it reaches to byte {end}, and {bytes} would cut it off: make the volume smaller first \
                 (--force goes on all the same)"
            )),
            _ => Ok(()),
        }
    };
    if bytes.is_some_and(|bytes| bytes < namespace.bytes()) {
        fits().map_err(failed)?;
    }
    let (clock, until) = (TscClock::new(), Instant::now() + PATIENCE);
    let wait = |namespace: &nearside_device::Namespace<_, _>| {
        namespace.poll_orphans(clock.now());
        std::thread::sleep(Duration::from_millis(1));
        Instant::now() < until
    };
    loop {
        match offer.subsystem.resize_if(nsid, bytes, wait, || fits().map_err(io::Error::other)) {
            // It is just being looked at.
            Err(e) if e.kind() == io::ErrorKind::ResourceBusy && wait(&namespace) => {}
            done => return done.map(|_| namespace.bytes()).map_err(|e| failed(e.to_string())),
        }
    }
}

/// The byte behind the last that anything may lie in, of what a store's word names: partitions and volumes
/// where they are known, else whatever was ever written to a file.
fn used(word: &str) -> Result<u64, String> {
    let (backing, path) = AnyStore::named(word).map_err(|e| e.to_string())?;
    let Some(path) = path.filter(|_| backing == Backing::File) else { return Ok(u64::MAX) };
    let failed = |e: &dyn std::fmt::Display| format!("{}: {e}", path.display());
    match named(&path).map_err(|e| failed(&e))? {
        0 => written(&path).map_err(|e| failed(&e)),
        end => Ok(end),
    }
}

/// The end of the last stretch of a file that is no hole.
fn written(path: &Path) -> io::Result<u64> {
    let file = File::open(path)?;
    let (mut from, mut end) = (0, 0);
    while let Some((_, to)) = file::next_data(&file, from)? {
        (from, end) = (to, to);
    }
    Ok(end)
}

/// The end of the last partition, or of the volume.
fn named(path: &Path) -> Result<u64, String> {
    let mut drive = Drive::open(path).map_err(|e| e.to_string())?;
    let session = drive.session();
    let parts = session.partitions().unwrap_or_default();
    let ends = parts.iter().map(|part| part.partition.offset.saturating_add(part.partition.len));
    let mut end = ends.max().unwrap_or(0);
    let ask = Ask { target: Target::Volume, operation: Operation::Info, follow: true };
    // Where there is no volume, nothing is said of one.
    let _ = session.stream(&ask, |record| {
        if let Record::Volume(volume) = record {
            let len = u64::from(volume.block_size).saturating_mul(volume.blocks);
            end = end.max(volume.offset.saturating_add(len));
        }
        ControlFlow::Continue(())
    });
    Ok(end)
}

/// Looks every second whether what stores lie in has become longer or shorter, for as long as the target is
/// there.
///
/// # Errors
/// The system's: no thread.
pub fn watch(target: &Arc<AnyTarget>) -> io::Result<()> {
    let target = Arc::downgrade(target);
    let mut said = BTreeMap::<(String, u32), String>::new();
    let look = move || {
        while let Some(target) = target.upgrade() {
            for offer in target.offers() {
                for (nsid, namespace) in offer.subsystem.namespaces() {
                    let named = (offer.nqn.clone(), nsid);
                    if namespace.store().write_log().is_some() {
                        continue;
                    }
                    match offer.subsystem.resize(nsid, None, |_| false) {
                        Ok(changed) => {
                            said.remove(&named);
                            if changed {
                                tracing::info!(
                                    nqn = offer.nqn,
                                    nsid,
                                    bytes = namespace.bytes(),
                                    "another length"
                                );
                            }
                        }
                        // A store that keeps its length, a namespace that has just gone or is being resized.
                        Err(e)
                            if matches!(
                                e.kind(),
                                io::ErrorKind::Unsupported
                                    | io::ErrorKind::NotFound
                                    | io::ErrorKind::ResourceBusy
                            ) => {}
                        Err(e) => {
                            let why = e.to_string();
                            if said.insert(named, why.clone()).as_ref() != Some(&why) {
                                tracing::warn!(nqn = offer.nqn, nsid, why, "its store's length");
                            }
                        }
                    }
                }
            }
            drop(target);
            std::thread::sleep(EVERY);
        }
    };
    std::thread::Builder::new().name("sizes".into()).spawn(look)?;
    Ok(())
}
