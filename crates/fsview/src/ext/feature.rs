//! Feature bits and the names that mke2fs gives them.

/// Compatible features that matter here.
pub(super) mod compat {
    pub(in crate::ext) const HAS_JOURNAL: u32 = 0x4;
    pub(in crate::ext) const DIR_INDEX: u32 = 0x20;
    pub(in crate::ext) const SPARSE_SUPER2: u32 = 0x200;
    pub(in crate::ext) const FAST_COMMIT: u32 = 0x400;
}

/// Incompatible features that matter here.
pub(super) mod incompat {
    pub(in crate::ext) const COMPRESSION: u32 = 0x1;
    pub(in crate::ext) const FILETYPE: u32 = 0x2;
    pub(in crate::ext) const RECOVER: u32 = 0x4;
    pub(in crate::ext) const JOURNAL_DEV: u32 = 0x8;
    pub(in crate::ext) const META_BG: u32 = 0x10;
    pub(in crate::ext) const EXTENTS: u32 = 0x40;
    pub(in crate::ext) const BIT64: u32 = 0x80;
    pub(in crate::ext) const MMP: u32 = 0x100;
    pub(in crate::ext) const FLEX_BG: u32 = 0x200;
    pub(in crate::ext) const EA_INODE: u32 = 0x400;
    pub(in crate::ext) const DIRDATA: u32 = 0x1000;
    pub(in crate::ext) const CSUM_SEED: u32 = 0x2000;
    pub(in crate::ext) const LARGE_DIR: u32 = 0x4000;
    pub(in crate::ext) const INLINE_DATA: u32 = 0x8000;
    pub(in crate::ext) const ENCRYPT: u32 = 0x1_0000;
    pub(in crate::ext) const CASEFOLD: u32 = 0x2_0000;

    /// What this reader understands, or refuses by inode. Not: compression, journal_dev, dirdata.
    pub(in crate::ext) const UNDERSTOOD: u32 = FILETYPE
        | RECOVER
        | META_BG
        | EXTENTS
        | BIT64
        | MMP
        | FLEX_BG
        | EA_INODE
        | CSUM_SEED
        | LARGE_DIR
        | INLINE_DATA
        | ENCRYPT
        | CASEFOLD;
}

/// Features that allow reading but not writing, of which only these matter here.
pub(super) mod ro_compat {
    pub(in crate::ext) const SPARSE_SUPER: u32 = 0x1;
    pub(in crate::ext) const LARGE_FILE: u32 = 0x2;
    pub(in crate::ext) const BTREE_DIR: u32 = 0x4;
    pub(in crate::ext) const HUGE_FILE: u32 = 0x8;
    pub(in crate::ext) const GDT_CSUM: u32 = 0x10;
    pub(in crate::ext) const BIGALLOC: u32 = 0x200;
    pub(in crate::ext) const METADATA_CSUM: u32 = 0x400;
    pub(in crate::ext) const ORPHAN_PRESENT: u32 = 0x1_0000;
}

const COMPAT: &[(u32, &str)] = &[
    (0x1, "dir_prealloc"),
    (0x2, "imagic_inodes"),
    (compat::HAS_JOURNAL, "has_journal"),
    (0x8, "ext_attr"),
    (0x10, "resize_inode"),
    (compat::DIR_INDEX, "dir_index"),
    (0x40, "lazy_bg"),
    (0x80, "exclude_inode"),
    (0x100, "snapshot_bitmap"),
    (compat::SPARSE_SUPER2, "sparse_super2"),
    (compat::FAST_COMMIT, "fast_commit"),
    (0x800, "stable_inodes"),
    (0x1000, "orphan_file"),
];

const INCOMPAT: &[(u32, &str)] = &[
    (incompat::COMPRESSION, "compression"),
    (incompat::FILETYPE, "filetype"),
    (incompat::RECOVER, "needs_recovery"),
    (incompat::JOURNAL_DEV, "journal_dev"),
    (incompat::META_BG, "meta_bg"),
    (incompat::EXTENTS, "extent"),
    (incompat::BIT64, "64bit"),
    (incompat::MMP, "mmp"),
    (incompat::FLEX_BG, "flex_bg"),
    (incompat::EA_INODE, "ea_inode"),
    (incompat::DIRDATA, "dirdata"),
    (incompat::CSUM_SEED, "metadata_csum_seed"),
    (incompat::LARGE_DIR, "large_dir"),
    (incompat::INLINE_DATA, "inline_data"),
    (incompat::ENCRYPT, "encrypt"),
    (incompat::CASEFOLD, "casefold"),
];

const RO_COMPAT: &[(u32, &str)] = &[
    (ro_compat::SPARSE_SUPER, "sparse_super"),
    (ro_compat::LARGE_FILE, "large_file"),
    (ro_compat::HUGE_FILE, "huge_file"),
    (ro_compat::GDT_CSUM, "uninit_bg"),
    (0x20, "dir_nlink"),
    (0x40, "extra_isize"),
    (0x80, "snapshot"),
    (0x100, "quota"),
    (ro_compat::BIGALLOC, "bigalloc"),
    (ro_compat::METADATA_CSUM, "metadata_csum"),
    (0x800, "replica"),
    (0x1000, "read-only"),
    (0x2000, "project"),
    (0x4000, "shared_blocks"),
    (0x8000, "verity"),
    (ro_compat::ORPHAN_PRESENT, "orphan_present"),
];

/// The three words of feature bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Features {
    pub(super) compat: u32,
    pub(super) incompat: u32,
    pub(super) ro_compat: u32,
}

impl Features {
    pub(super) fn compat(self, bit: u32) -> bool {
        self.compat & bit != 0
    }

    pub(super) fn incompat(self, bit: u32) -> bool {
        self.incompat & bit != 0
    }

    pub(super) fn ro_compat(self, bit: u32) -> bool {
        self.ro_compat & bit != 0
    }

    /// Every name, in mke2fs's order of the words; a bit without a name is `FEATURE_C13`, `FEATURE_I20`,
    /// `FEATURE_R31`.
    pub(super) fn names(self) -> Vec<String> {
        let mut all = names(self.compat, COMPAT, 'C');
        all.extend(names(self.incompat, INCOMPAT, 'I'));
        all.extend(names(self.ro_compat, RO_COMPAT, 'R'));
        all
    }

    /// The names of incompatible features that this reader must refuse.
    pub(super) fn refused(self) -> Vec<String> {
        names(self.incompat & !incompat::UNDERSTOOD, INCOMPAT, 'I')
    }

    /// "ext2", "ext3" or "ext4", by the rule that blkid uses.
    pub(super) fn file_system(self) -> &'static str {
        let old_ro = ro_compat::SPARSE_SUPER | ro_compat::LARGE_FILE | ro_compat::BTREE_DIR;
        let old_in = incompat::FILETYPE | incompat::META_BG;
        let journal = self.compat(compat::HAS_JOURNAL);
        if self.ro_compat & !old_ro != 0 || self.incompat & !(old_in | incompat::RECOVER) != 0 {
            "ext4"
        } else if journal {
            "ext3"
        } else {
            "ext2"
        }
    }
}

fn names(word: u32, table: &[(u32, &str)], letter: char) -> Vec<String> {
    (0..32u32)
        .filter_map(|n| {
            let bit = 1u32.wrapping_shl(n);
            if word & bit == 0 {
                return None;
            }
            let known = table.iter().find(|(b, _)| *b == bit);
            Some(known.map_or_else(|| format!("FEATURE_{letter}{n}"), |(_, name)| (*name).to_string()))
        })
        .collect()
}
