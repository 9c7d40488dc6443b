#!/usr/bin/env python3
"""Remakes fixtures/f2fs/ and fixtures/trace/: what a stock kernel wrote, recorded. See fixtures/README.md.

    scripts/guest/remake.py [NAME]...      default: all

Needs mkfs.f2fs, mke2fs, zstd, qemu-system-x86_64 and what build.sh needs; about a minute for each name."""

import pathlib
import shutil
import struct
import subprocess
import sys
import tarfile
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
FIXTURES = HERE.parent.parent / "fixtures"
MIB = 1 << 20
ALL_INODE = "extra_attr,inode_checksum,flexible_inline_xattr,inode_crtime,sb_checksum,project_quota,lost_found"

# Name: scenario, options of mkfs.f2fs.
IMAGES = {
    "plain": ("fixture,f2fs", []),
    "extra": ("fixture,f2fs,noatime+inline_xattr_size=60", ["-O", ALL_INODE]),
    "synced": ("synced,f2fs", []),
    "fuzzed": ("fuzzed,f2fs", ["-O", "extra_attr,flexible_inline_xattr"]),
    "fsynced": ("fsynced,f2fs", ["-O", "extra_attr,inode_checksum"]),
}


def run(*words):
    subprocess.run([str(w) for w in words], check=True, stdout=subprocess.DEVNULL)


def sparse(path, size):
    with open(path, "wb") as f:
        f.truncate(size)


def compress(source, target):
    target.parent.mkdir(parents=True, exist_ok=True)
    run("zstd", "-q", "-f", "-19", "--long=26", source, "-o", target)
    print(f"{target}: {target.stat().st_size} bytes")


def keep(text, work, target):
    (work / "text").write_text(text)
    compress(work / "text", target)


def boot(scenario, work, *disks):
    run(HERE / "boot.sh", scenario, work / "out.img", *disks)
    with tarfile.open(work / "out.img") as tar:
        return {m.name: tar.extractfile(m).read().decode() for m in tar}


def image(name, work):
    scenario, options = IMAGES[name]
    disk = work / "disk.img"
    sparse(disk, 64 * MIB)
    run("mkfs.f2fs", "-q", "-f", "-l", name, *options, disk)
    results = boot(scenario, work, disk)
    base = FIXTURES / "f2fs"
    compress(disk, base / f"{name}.img.zst")
    if "manifest.txt" in results:
        keep(results["manifest.txt"], work, base / f"{name}.txt.zst")
    if name == "fsynced":
        # What the kernel's own recovery makes of it.
        after = work / "after.img"
        shutil.copyfile(disk, after)
        keep(boot("manifests,f2fs", work, after)["manifest-0.txt"], work, base / f"{name}-recovered.txt.zst")


def trace(kind, work, steps=16):
    disk = work / "disk.img"
    size = 64 * MIB if kind == "f2fs" else 16 * MIB
    sparse(disk, size)
    if kind == "f2fs":
        run("mkfs.f2fs", "-q", "-f", "-l", "trace", disk, size // 512)
    else:
        run("mke2fs", "-q", "-t", kind, "-b", "4096", "-L", "trace", disk, size // 4096)
    with open(disk, "r+b") as f:
        f.truncate(size + 4096)  # behind the volume: the marks
    base = FIXTURES / "trace"
    shutil.copyfile(disk, work / "base.img")
    with open(work / "base.img", "r+b") as f:
        f.truncate(size)
    results = boot(f"trace,{kind},{steps}", work, f"{disk},blklog={work / 'log'}")
    compress(work / "base.img", base / f"{kind}.img.zst")
    (work / "trace").write_bytes(converted((work / "log").read_bytes(), size))
    compress(work / "trace", base / f"{kind}.trace.zst")
    marks = "".join(f"# mark {step}\n" + results[f"mark-{step}.txt"] for step in range(steps))
    keep(marks, work, base / f"{kind}.txt.zst")


def converted(log, size):
    """From the log of QEMU's blklogwrites (dm-log-writes' format) to the trace of fixtures/README.md."""
    magic, version, entries, sector = struct.unpack_from("<QQQI", log)
    assert (magic, version) == (0x6A736677736872, 1), "not a log of writes"
    out = bytearray(b"NEARTRC1" + struct.pack("<Q", size))
    at = sector
    for _ in range(entries):
        first, count, flags, _ = struct.unpack_from("<QQQQ", log, at)
        at += sector
        offset, length = first * 512, count * 512
        if flags & 4:  # discard: no data follows
            if length and offset < size:
                out += b"D" + struct.pack("<QQ", offset, min(length, size - offset))
            continue
        data = log[at : at + length]
        at += -(-length // sector) * sector
        if length and offset >= size:
            out += b"M" + data[:8]
        elif length:
            out += b"W" + struct.pack("<QI", offset, length) + data
        if flags & 3:
            out += b"F"
    return bytes(out)


def main():
    names = sys.argv[1:] or [*IMAGES, "trace-f2fs", "trace-ext4"]
    for name in names:
        with tempfile.TemporaryDirectory() as work:
            if name.startswith("trace-"):
                trace(name.removeprefix("trace-"), pathlib.Path(work))
            else:
                image(name, pathlib.Path(work))


if __name__ == "__main__":
    main()
