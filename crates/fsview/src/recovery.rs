//! What stands only in a journal or a log: whether a view takes it in, and what it took in.

/// Which state of a volume is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// What a mount would show after a power cut at this instant.
    #[default]
    Recovered,
    /// What lies in home locations, whatever a journal or a log holds: for forensics.
    Home,
}

/// What recovery has added to the home locations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Committed transactions of ext4's journal.
    pub transactions: u64,
    /// Fast commits that follow them.
    pub fast_commits: u64,
    /// Nodes of F2FS's roll-forward chain that were applied.
    pub nodes: u64,
    /// The last transaction (ext4) or checkpoint version (F2FS) that the view shows; 0 where nothing was
    /// recovered.
    pub up_to: u64,
}

/// A byte behind any volume's end, and behind what a volume's place in a namespace adds to it: it stands for
/// what a volume shows and no block of it has, where that is named ([`crate::Source::shows`]). `nth`: which
/// of these things, of 48 bits.
pub(crate) fn behind_all(nth: u64) -> u64 {
    const BEHIND_ALL: u64 = 1 << 62;
    BEHIND_ALL.wrapping_add(nth.wrapping_shl(10))
}
