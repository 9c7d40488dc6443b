//! What is answered at once: about a path that was walked before, in a volume to which nothing has happened
//! since. That takes one look into the caches, and no task.

use nearside_fsview::{FileKind, Inode};
use nearside_near_data::{Counters, MAX_PATH, Operation, Record, Request, Target};

use crate::model::{Outcome, Sink, entry, warnings};
use crate::permission::Verdict;
use crate::ways::{Key, Reached};
use crate::{Caches, Retriever};

impl Retriever {
    /// Answers a request as [`Retriever::run`] would, where all there is to it is what a walk came to that
    /// was taken before, and nothing has changed since. `None`: it takes `run`. `now_ns` is the drive's
    /// clock; `sink` makes what the results go to, which is returned with them. It waits for nobody.
    pub fn run_at_once<S: Sink>(
        &self,
        request: &Request,
        now_ns: impl Fn() -> u64,
        sink: impl FnOnce() -> S,
    ) -> Option<(S, Outcome)> {
        let stat = match request.operation {
            Operation::Stat => true,
            Operation::Nop => false,
            _ => return None,
        };
        let Target::Path(path) = &request.target else { return None };
        // Who wants to know where the time goes is told of tasks.
        if request.resume.is_some() || self.trace.is_some() {
            return None;
        }
        let start = now_ns();
        // Before anything is looked at: what changes from now on counts as later than this.
        let changes = self.monitor.changes();
        let mut caches = self.try_caches()?;
        let Caches { volumes, files, .. } = &mut *caches;
        let volume = volumes.iter().find_map(|kept| kept.known_at(request.partition, changes, start))?;
        let who = &request.credentials;
        let key = Key::new(self.seed, volume.id, who, path, request.follow);
        let (_, reached) = files.known(key, changes)?;
        if !volume.tells(reached, who, &self.config) {
            return None;
        }
        let inode = at_hand(reached, stat)?;
        let mut sink = sink();
        for (text, unstable) in warnings(volume.volume.info(), volume.standing.as_ref(), self.beneath()) {
            // Where there is no room for it, the answer matters more.
            let _ = sink.push(Record::Warning { text, unstable }, MAX_PATH);
        }
        if let Some(inode) = inode
            && sink.push(entry(path, inode, None), path.len()).is_err()
        {
            return None;
        }
        let cache_hits = reached.hits;
        drop(caches);
        let locate_ns = now_ns().saturating_sub(start);
        let counters = Counters { files: 1, cache_hits, locate_ns, ..Counters::default() };
        Some((sink, Outcome { counters, ..Outcome::default() }))
    }
}

/// What there is to be answered about what a walk came to: with `stat` its inode, else that it may be read.
/// `None`: it takes more than that.
pub(crate) fn at_hand(reached: &Reached, stat: bool) -> Option<Option<&Inode>> {
    let inode = &*reached.found.inode;
    match stat {
        // A link's target may have to be read.
        true => (inode.kind != FileKind::Symlink).then_some(Some(inode)),
        false => (reached.readable == Verdict::Yes).then_some(None),
    }
}
