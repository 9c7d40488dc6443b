//! Images for the ext tests: variants that mke2fs makes, and seeded trees to fill them with.
#![allow(dead_code, reason = "each test program uses a part")]

pub mod churn;
pub mod noting;
pub mod recovered;

use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use nearside_conformance::volume::unmount;
use nearside_random::Rng;

/// Runs a command; its output, or what it said.
pub fn run(program: &str, args: &[&str]) -> Result<Vec<u8>, String> {
    let output = Command::new(program)
        .args(args)
        .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        .env("MKE2FS_SKIP_PROGRESS", "1")
        .output()
        .map_err(|e| format!("{program}: {e}"))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let said = [&output.stdout[..], &output.stderr].concat();
    Err(format!("{program} {args:?}: {} {}", output.status, String::from_utf8_lossy(&said)))
}

/// A number that the environment may say otherwise.
pub fn setting(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |said| said.parse().unwrap_or_else(|e| panic!("{name}={said}: {e}")))
}

/// A way to call mke2fs.
#[derive(Clone, Copy, Debug)]
pub struct Variant {
    pub name: &'static str,
    pub args: &'static str,
    /// tune2fs or debugfs afterwards, as shell lines with `$IMG`.
    pub after: &'static str,
}

const fn v(name: &'static str, args: &'static str) -> Variant {
    Variant { name, args, after: "" }
}

/// Every variant that a kernel with 4 KiB pages mounts.
pub const VARIANTS: &[Variant] = &[
    v("ext2-1k", "-t ext2 -b 1024"),
    v("ext2-2k", "-t ext2 -b 2048"),
    v("ext2-4k", "-t ext2 -b 4096"),
    v("ext2-128", "-t ext2 -b 1024 -I 128"),
    v("ext2-nofiletype", "-t ext2 -b 1024 -O ^filetype"),
    v("ext2-noindex", "-t ext2 -b 4096 -O ^dir_index"),
    v("ext3-1k", "-t ext3 -b 1024"),
    v("ext3-4k", "-t ext3 -b 4096"),
    v("ext4-1k", "-t ext4 -b 1024"),
    v("ext4-2k", "-t ext4 -b 2048"),
    v("ext4-4k", "-t ext4 -b 4096"),
    v("ext4-128", "-t ext4 -b 4096 -I 128"),
    v("ext4-512", "-t ext4 -b 4096 -I 512"),
    v("ext4-no64bit", "-t ext4 -O ^64bit"),
    v("ext4-noextent", "-t ext4 -b 4096 -O ^extent,^64bit"),
    v("ext4-nocsum", "-t ext4 -O ^metadata_csum"),
    v("ext4-uninit", "-t ext4 -O ^metadata_csum,uninit_bg"),
    v("ext4-uninit-no64bit", "-t ext4 -O ^metadata_csum,^64bit,uninit_bg"),
    v("ext4-seed", "-t ext4 -O metadata_csum_seed"),
    v("ext4-inline", "-t ext4 -b 4096 -O inline_data"),
    v("ext4-inline-1k-512", "-t ext4 -b 1024 -I 512 -O inline_data"),
    v("ext4-inline-nocsum", "-t ext4 -b 1024 -O inline_data,^metadata_csum"),
    v("ext4-bigalloc", "-t ext4 -b 4096 -O bigalloc -C 65536"),
    v("ext4-bigalloc-1k", "-t ext4 -b 1024 -O bigalloc -C 16384"),
    v("ext4-meta_bg", "-t ext4 -b 1024 -O meta_bg,^resize_inode"),
    v("ext4-meta_bg-4k", "-t ext4 -b 4096 -O meta_bg,^resize_inode -g 1024"),
    v("ext4-sparse2", "-t ext4 -b 1024 -O sparse_super2"),
    v("ext4-noflex", "-t ext4 -b 1024 -O ^flex_bg"),
    v("ext4-large_dir", "-t ext4 -b 1024 -O large_dir"),
    v("ext4-nofiletype", "-t ext4 -O ^filetype"),
    v("ext4-noindex", "-t ext4 -O ^dir_index"),
    v("ext4-orphan_file", "-t ext4 -b 4096 -O orphan_file"),
    v("ext4-ea_inode", "-t ext4 -b 4096 -O ea_inode"),
    v("ext4-nojournal", "-t ext4 -b 4096 -O ^has_journal"),
    v("ext4-fast_commit", "-t ext4 -b 4096 -O fast_commit"),
    v("ext4-quota", "-t ext4 -b 4096 -O quota,project"),
    v("ext4-casefold", "-t ext4 -b 4096 -O casefold"),
    v("ext4-verity-encrypt", "-t ext4 -b 4096 -O verity,encrypt"),
    Variant { name: "ext4-tea", args: "-t ext4 -b 1024", after: "tune2fs -E hash_alg=tea $IMG" },
    Variant { name: "ext4-legacy", args: "-t ext4 -b 1024", after: "tune2fs -E hash_alg=legacy $IMG" },
    Variant {
        name: "ext4-unsigned",
        args: "-t ext4 -b 1024",
        after: "debugfs -w -R 'ssv flags 2' $IMG; debugfs -R 'show_super_stats -h' $IMG",
    },
    Variant {
        name: "ext4-tea-unsigned",
        args: "-t ext4 -b 1024",
        after: "tune2fs -E hash_alg=tea $IMG; debugfs -w -R 'ssv flags 2' $IMG",
    },
    Variant {
        name: "ext4-legacy-unsigned",
        args: "-t ext4 -b 1024",
        after: "tune2fs -E hash_alg=legacy $IMG; debugfs -w -R 'ssv flags 2' $IMG",
    },
];

/// Block sizes above the page, which only tools read here.
pub const LARGE_BLOCKS: &[Variant] = &[
    v("ext4-16k", "-t ext4 -b 16384"),
    v("ext4-64k", "-t ext4 -b 65536"),
    v("ext2-64k", "-t ext2 -b 65536"),
];

/// Makes an image; `Ok(false)` where this mke2fs does not know the variant.
pub fn make(variant: &Variant, image: &Path, mib: u64, from: Option<&Path>) -> Result<bool, String> {
    let file = File::create(image).map_err(|e| e.to_string())?;
    file.set_len(mib << 20).map_err(|e| e.to_string())?;
    let mut args: Vec<&str> = vec!["-q", "-F", "-L", "near side"];
    args.extend(variant.args.split(' '));
    if let Some(from) = from {
        args.extend(["-d", from.to_str().unwrap()]);
    }
    args.push(image.to_str().unwrap());
    match run("mke2fs", &args) {
        Ok(_) => {}
        Err(said) if said.contains("Invalid filesystem option") => return Ok(false),
        Err(said) => return Err(said),
    }
    if !variant.after.is_empty() {
        let script = format!("set -e; IMG='{}'; {}", image.display(), variant.after);
        run("sh", &["-c", &script])?;
    }
    Ok(true)
}

/// A name of any bytes but '/' and NUL.
fn name(random: &mut Rng, len: usize) -> Vec<u8> {
    (0..len)
        .map(|_| match random.below(255) as u8 + 1 {
            b'/' => b'_',
            byte => byte,
        })
        .collect()
}

fn below(dir: &Path, name: &[u8]) -> PathBuf {
    dir.join(std::ffi::OsStr::from_bytes(name))
}

/// Fills a directory with what any user can make: files of telling sizes, links, deep paths, odd names, a
/// hole.
pub fn plant(root: &Path, seed: u64) -> std::io::Result<()> {
    let mut random = Rng(seed);
    let sizes = root.join("sizes");
    fs::create_dir(&sizes)?;
    for size in
        [0, 1, 59, 60, 61, 100, 130, 155, 156, 157, 160, 200, 400, 1023, 1024, 1025, 4095, 4096, 4097, 12288]
            .into_iter()
            .chain([13 << 10, 50_000, 300_000, 1 << 20])
    {
        fs::write(sizes.join(format!("{size}")), random.bytes(size))?;
    }
    let modes = root.join("modes");
    fs::create_dir(&modes)?;
    for mode in [0o000, 0o400, 0o644, 0o755, 0o1777, 0o2755, 0o4711, 0o6777] {
        let path = modes.join(format!("{mode:o}"));
        fs::write(&path, "x")?;
        fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
    }
    let links = root.join("links");
    fs::create_dir(&links)?;
    for len in [1, 7, 58, 59, 60, 61, 100, 150, 156, 160, 400, 900, 1000] {
        let target: String = (0..len).map(|n| if n % 17 == 3 { '/' } else { 'a' }).collect();
        symlink(target, links.join(format!("symbolic-{len}")))?;
    }
    for n in 0..5 {
        fs::hard_link(sizes.join("50000"), links.join(format!("hard-{n}")))?;
    }
    run("mkfifo", &[links.join("fifo").to_str().unwrap()]).map_err(std::io::Error::other)?;
    let names = root.join("names");
    fs::create_dir(&names)?;
    for len in [1, 2, 3, 4, 15, 16, 17, 31, 32, 33, 63, 64, 65, 128, 254, 255] {
        fs::write(below(&names, &name(&mut random, len)), random.bytes(len))?;
    }
    fs::write(names.join("größe\n\t\\ "), "line")?;
    let mut deep = root.join("deep");
    fs::create_dir(&deep)?;
    for n in 0..25 {
        fs::write(deep.join("file"), format!("at depth {n}"))?;
        deep = deep.join(format!("d{n}"));
        fs::create_dir(&deep)?;
    }
    let many = root.join("many");
    fs::create_dir(&many)?;
    for n in 0..1500u64 {
        let len = random.below(60) as usize + 1;
        let name = [&name(&mut random, len)[..], format!("-{n}").as_bytes()].concat();
        fs::write(below(&many, &name), n.to_string())?;
    }
    let few = root.join("few");
    for n in 0..12 {
        let dir = few.join(format!("with-{n}"));
        fs::create_dir_all(&dir)?;
        for k in 0..n {
            fs::write(dir.join(format!("entry number {k}")), "")?;
        }
    }
    let sparse = root.join("sparse");
    fs::create_dir(&sparse)?;
    let file = File::create(sparse.join("ends"))?;
    file.write_all_at(b"first", 0)?;
    file.write_all_at(b"last", 5_000_000)?;
    File::create(sparse.join("only a hole"))?.set_len(3_000_001)?;
    let file = File::create(sparse.join("comb"))?;
    for n in 0..40u64 {
        file.write_all_at(&random.bytes(700), n * 12_288 + random.below(4096))?;
    }
    Ok(())
}

/// A mount of an image by the machine's kernel; unmounted when dropped.
pub struct Mount {
    at: PathBuf,
}

impl Mount {
    /// `options` beside `loop`.
    pub fn new(image: &Path, at: &Path, options: &str) -> Result<Mount, String> {
        fs::create_dir_all(at).map_err(|e| e.to_string())?;
        let options = format!("loop,noatime,{options}");
        run("mount", &["-o", &options, image.to_str().unwrap(), at.to_str().unwrap()])?;
        Ok(Mount { at: at.to_path_buf() })
    }

    pub fn path(&self) -> &Path {
        &self.at
    }

    /// Unmounts and says whether that went well.
    pub fn end(self) -> Result<(), String> {
        let done = unmount(&self.at);
        std::mem::forget(self);
        done
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if unmount(&self.at).is_err() {
            let _ = run("umount", &["-l", self.at.to_str().unwrap()]);
        }
    }
}

/// Adds what only root and a kernel can make: owners, devices, unwritten extents, access lists, fragments,
/// odd times.
pub fn plant_as_root(root: &Path, block: u64, seed: u64) -> Result<(), String> {
    let mut random = Rng(seed);
    plant_owners(root)?;
    plant_devices(root)?;
    plant_times(root)?;
    plant_extents(root, block, &mut random)?;
    plant_lengths(root, &mut random)?;
    plant_thinned(root)?;
    plant_lists(root)
}

fn text(error: std::io::Error) -> String {
    error.to_string()
}

fn plant_owners(root: &Path) -> Result<(), String> {
    let owners = root.join("owners");
    fs::create_dir(&owners).map_err(text)?;
    for (uid, gid) in [(0, 1), (1000, 1000), (65_535, 65_536), (70_000, 4_000_000_000), (u32::MAX - 2, 7)] {
        let path = owners.join(format!("{uid}-{gid}"));
        fs::write(&path, "mine").map_err(text)?;
        std::os::unix::fs::chown(&path, Some(uid), Some(gid)).map_err(text)?;
    }
    Ok(())
}

fn plant_devices(root: &Path) -> Result<(), String> {
    let special = root.join("special");
    fs::create_dir(&special).map_err(text)?;
    for (kind, major, minor) in
        [("c", 1, 3), ("b", 255, 255), ("c", 256, 0), ("b", 4095, 1_048_575), ("c", 0, 256), ("b", 7, 70_000)]
    {
        let path = special.join(format!("{kind}-{major}-{minor}"));
        run("mknod", &[path.to_str().unwrap(), kind, &major.to_string(), &minor.to_string()])?;
    }
    drop(std::os::unix::net::UnixListener::bind(special.join("socket")).map_err(text)?);
    Ok(())
}

fn plant_times(root: &Path) -> Result<(), String> {
    let times = root.join("times");
    fs::create_dir(&times).map_err(text)?;
    for time in [
        "1901-12-14 00:00:00.5 UTC",
        "1969-12-31 23:59:59.999999999 UTC",
        "2037-01-01 UTC",
        "2040-06-01 12:00:00.123456789 UTC",
        "2200-01-01 UTC",
        "2446-05-10 22:38:55.7 UTC",
    ] {
        let path = times.join(time.replace([' ', ':'], "_"));
        run("touch", &["-d", time, path.to_str().unwrap()])?;
    }
    Ok(())
}

fn plant_extents(root: &Path, block: u64, random: &mut Rng) -> Result<(), String> {
    // Unwritten extents, some of them written in the middle.
    let unwritten = root.join("unwritten");
    if run("fallocate", &["-l", "1000000", unwritten.to_str().unwrap()]).is_ok() {
        let file = fs::OpenOptions::new().write(true).open(&unwritten).map_err(text)?;
        file.write_all_at(&random.bytes(30_000), 400_001).map_err(text)?;
        let kept = root.join("unwritten beyond the end");
        fs::write(&kept, "short").map_err(text)?;
        run("fallocate", &["-n", "-o", "4096", "-l", "300000", kept.to_str().unwrap()])?;
        let punched = root.join("punched");
        fs::write(&punched, random.bytes(500_000)).map_err(text)?;
        run("fallocate", &["-p", "-o", "100000", "-l", "200000", punched.to_str().unwrap()])?;
    }
    // Every second block, from the end to the start: one extent each, and every kind of indirect block.
    let comb = File::create(root.join("fragments")).map_err(text)?;
    for n in (0..3000u64).rev() {
        comb.write_all_at(&n.to_le_bytes(), n * 2 * block).map_err(text)?;
    }
    let per_block = block / 4;
    let far = File::create(root.join("far")).map_err(text)?;
    for at in [0, 11, 12, 12 + per_block, 12 + per_block + per_block * per_block]
        .into_iter()
        .filter(|at| at * block < 1 << 30)
    {
        far.write_all_at(&random.bytes(block as usize * 2), at * block + 3).map_err(text)?;
        far.write_all_at(b"x", (at + 9) * block).map_err(text)?;
    }
    Ok(())
}

/// Content that grows out of the inode, and shrinks.
fn plant_lengths(root: &Path, random: &mut Rng) -> Result<(), String> {
    let grown = root.join("grown");
    for len in [50usize, 150, 5000] {
        let path = root.join(format!("cut from {len}"));
        fs::write(&path, random.bytes(len)).map_err(text)?;
        let file = fs::OpenOptions::new().append(true).open(&path).map_err(text)?;
        file.set_len(len as u64 / 2).map_err(text)?;
        fs::write(&grown, random.bytes(len)).map_err(text)?;
        let longer = root.join(format!("lengthened from {len}"));
        fs::write(&longer, random.bytes(len)).map_err(text)?;
        let file = fs::OpenOptions::new().append(true).open(&longer).map_err(text)?;
        file.set_len(len as u64 + 9000).map_err(text)?;
    }
    Ok(())
}

/// A directory out of which names go again.
fn plant_thinned(root: &Path) -> Result<(), String> {
    let thinned = root.join("thinned");
    fs::create_dir(&thinned).map_err(text)?;
    for n in 0..900 {
        fs::write(thinned.join(format!("a name to be thinned out {n}")), "").map_err(text)?;
    }
    for n in (0..900).filter(|n| n % 5 != 0) {
        fs::remove_file(thinned.join(format!("a name to be thinned out {n}"))).map_err(text)?;
    }
    Ok(())
}

fn plant_lists(root: &Path) -> Result<(), String> {
    let lists = root.join("lists");
    fs::create_dir(&lists).map_err(text)?;
    for (name, list) in ACLS {
        let path = lists.join(name);
        fs::write(&path, "listed").map_err(text)?;
        if name.contains("beside") {
            // Fills the inode's tail, so that the list goes to a block.
            run("setfattr", &["-n", "user.filler", "-v", &"f".repeat(300), path.to_str().unwrap()])?;
        }
        run("setfacl", &["-m", list, path.to_str().unwrap()])?;
    }
    let dir = lists.join("directory");
    fs::create_dir(&dir).map_err(text)?;
    run("setfacl", &["-m", "u:5:x,d:u:6:rwx", dir.to_str().unwrap()])?;
    fs::write(dir.join("inherits"), "").map_err(text)?;
    let path = lists.join("attributes");
    fs::write(&path, "named").map_err(text)?;
    let path = path.to_str().unwrap();
    for (name, value) in [
        ("user.a", "one".to_owned()),
        ("user.no value", String::new()),
        ("trusted.of root", "two".repeat(50)),
        ("security.other", "three".to_owned()),
    ] {
        run("setfattr", &["-n", name, "-v", &value, path])?;
    }
    // A link has only such.
    let link = lists.join("link");
    symlink("user", &link).map_err(text)?;
    run("setfattr", &["-h", "-n", "trusted.of a link", "-v", "four", link.to_str().unwrap()])?;
    // Only feature ea_inode has room for them.
    for len in [5000, 40_000] {
        let _ = run("setfattr", &["-n", &format!("user.{len}"), "-v", &"l".repeat(len), path]);
    }
    Ok(())
}

/// Access lists in `lists/`.
pub const ACLS: &[(&str, &str)] = &[
    ("user", "u:1000:rw"),
    ("masked", "u:70000:rwx,g:2000:r-x,m::r"),
    ("long", "u:1:r,u:2:r,u:3:r,u:4:r,u:5:r,u:6:r,g:1:w,g:2:w,g:3:x,g:4:x,g:5:x,o::-"),
    ("beside other attributes", "u:4000000000:x"),
];

/// `files` hard links to a few files in one directory: many entries, few inodes.
pub fn crowd(dir: &Path, files: usize, name_len: usize) -> std::io::Result<()> {
    fs::create_dir(dir)?;
    let mut first = dir.join("of none");
    for n in 0..files {
        let path = dir.join(format!("{n:0name_len$}"));
        if n % 30_000 == 0 {
            fs::write(&path, n.to_string())?;
            first = path;
        } else {
            fs::hard_link(&first, path)?;
        }
    }
    Ok(())
}

/// Little, but of every structure: for volumes of a few MiB that are walked often.
pub fn plant_small(root: &Path) -> std::io::Result<()> {
    let mut random = Rng(3);
    fs::write(root.join("plain"), random.bytes(3000))?;
    fs::write(root.join("neighbour"), random.bytes(9000))?;
    fs::write(root.join("tiny"), "tiny")?;
    fs::write(root.join("rather small"), random.bytes(120))?;
    symlink("tiny", root.join("short link"))?;
    symlink("t".repeat(300), root.join("long link"))?;
    fs::hard_link(root.join("tiny"), root.join("hard link"))?;
    let indexed = root.join("indexed");
    fs::create_dir(&indexed)?;
    for n in 0..120 {
        fs::write(indexed.join(format!("a name that is not so short {n}")), n.to_string())?;
    }
    fs::create_dir_all(root.join("a/b/c/d"))?;
    fs::write(root.join("a/b/c/d/e"), "below")?;
    let comb = File::create(root.join("comb"))?;
    for n in 0..200u64 {
        comb.write_all_at(&n.to_le_bytes(), n * 8192)?;
    }
    Ok(())
}
