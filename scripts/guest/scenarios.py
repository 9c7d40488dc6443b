"""What runs in the guest: /work/main.py SCENARIO [DEVICE FILE-SYSTEM]...

Each scenario mounts the volumes it is given (vdb, vdc, ...), works on them through the guest's own kernel and leaves its
results as a tar on /dev/vda. Everything is seeded: the same scenario makes the same tree.

A manifest has one line per path, fields separated by tabs: path, st_mode in octal, uid, gid, links, size ("-" for a
directory), mtime as seconds.nanoseconds, rdev as major:minor, SHA-256 of the content, link target, access ACL; "-" where a
field does not apply. Bytes that are not printable ASCII are written \\xNN."""

import hashlib
import io
import os
import random
import stat
import struct
import sys
import tarfile


def command(*words):
    status = os.spawnvp(os.P_WAIT, words[0], words)
    if status != 0:
        raise OSError(status, " ".join(words))


def mount(device, kind, at, options="noatime"):
    os.makedirs(at, exist_ok=True)
    command("mount", "-t", kind, "-o", options, device, at)


def umount(at):
    command("umount", at)


def power_off(results):
    """Leaves the results and stops the machine as a power cut would: nothing is synced."""
    deliver(results)
    print("guest: power off", flush=True)
    with open("/proc/sysrq-trigger", "w") as f:
        f.write("o")
    while True:
        pass


def deliver(results):
    blob = io.BytesIO()
    with tarfile.open(fileobj=blob, mode="w") as tar:
        for name, text in results.items():
            data = text.encode()
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    with open("/dev/vda", "r+b", buffering=0) as out:
        out.write(blob.getvalue())
        os.fsync(out.fileno())


def escape(data):
    return "".join(chr(b) if 0x20 < b < 0x7F and b != 0x5C else f"\\x{b:02x}" for b in data)


def acl_text(path):
    try:
        raw = os.getxattr(path, "system.posix_acl_access", follow_symlinks=False)
    except OSError:
        return "-"
    tags = {1: "u", 2: "u", 4: "g", 8: "g", 16: "m", 32: "o"}
    entries = []
    for at in range(4, len(raw), 8):
        tag, perm, who = struct.unpack_from("<HHI", raw, at)
        entries.append(f"{tags[tag]}:{who if tag in (2, 8) else ''}:{perm}")
    return ",".join(entries)


def manifest(root):
    root = os.fsencode(root)
    lines = []
    todo = [root]
    while todo:
        path = todo.pop()
        s = os.lstat(path)
        size, rdev, sha, target = str(s.st_size), "-", "-", "-"
        if stat.S_ISDIR(s.st_mode):
            size = "-"
            todo += [path + b"/" + name for name in os.listdir(path)]
        elif stat.S_ISLNK(s.st_mode):
            target = escape(os.readlink(path))
        elif stat.S_ISREG(s.st_mode):
            digest = hashlib.sha256()
            with open(path, "rb") as f:
                while piece := f.read(1 << 20):
                    digest.update(piece)
            sha = digest.hexdigest()
        elif stat.S_ISCHR(s.st_mode) or stat.S_ISBLK(s.st_mode):
            rdev = f"{os.major(s.st_rdev)}:{os.minor(s.st_rdev)}"
        time = f"{s.st_mtime_ns // 10**9}.{s.st_mtime_ns % 10**9:09}"
        shown = escape(path[len(root):] or b"/")
        acl = "-" if stat.S_ISLNK(s.st_mode) else acl_text(path)
        lines.append(
            f"{shown}\t{s.st_mode:o}\t{s.st_uid}\t{s.st_gid}\t{s.st_nlink}\t{size}\t{time}\t{rdev}\t{sha}\t{target}\t{acl}"
        )
    return "\n".join(sorted(lines)) + "\n"


def write(path, data, sync=False):
    with open(path, "wb") as f:
        f.write(data)
        if sync:
            f.flush()
            os.fsync(f.fileno())


def append(path, data, sync=False):
    with open(path, "ab") as f:
        f.write(data)
        if sync:
            f.flush()
            os.fsync(f.fileno())


def set_acl(path, entries):
    tags = {"u": 1, "U": 2, "g": 4, "G": 8, "m": 16, "o": 32}
    raw = struct.pack("<I", 2)
    for tag, who, perm in entries:
        raw += struct.pack("<HHI", tags[tag], perm, 0xFFFFFFFF if who is None else who)
    os.setxattr(path, "system.posix_acl_access", raw)


def text(rng, size):
    """Bytes that compress well and still differ: lines of words."""
    words = ["alpha", "beta", "gamma", "delta", "needle", "omega", "sector", "segment"]
    line = " ".join(rng.choice(words) for _ in range(12)) + f" {rng.random()}\n"
    return (line.encode() * (size // len(line) + 1))[:size]


def varied(root, rng):
    """One of each thing a kernel writes."""
    for size in (0, 1, 57, 3400, 3488, 3489, 4096, 4097, 70_000, 3_692_000, 3_780_608):
        write(f"{root}/size-{size}", text(rng, size))

    # Directories: inline; inline grown into blocks; shrunk again; several levels of hash table.
    os.mkdir(f"{root}/inline")
    for i in range(5):
        write(f"{root}/inline/file-{i}", text(rng, 100 * i))
    os.mkdir(f"{root}/grown")
    for i in range(400):
        write(f"{root}/grown/a name of middle length {i}", b"")
    os.mkdir(f"{root}/shrunk")
    for i in range(1500):
        write(f"{root}/shrunk/{i}", b"")
    for i in range(1500):
        if i % 50:
            os.unlink(f"{root}/shrunk/{i}")
    os.mkdir(f"{root}/levels")
    for i in range(3000):
        os.link(f"{root}/size-57", f"{root}/levels/" + ("n" * (i % 200)) + str(i))

    deep = root + "/deep"
    os.mkdir(deep)
    for level in range(25):
        deep += f"/level-{level}"
        os.mkdir(deep)
    write(deep + "/bottom", b"the bottom\n")

    # Names.
    os.mkdir(f"{root}/names")
    for name in (b"n" * 255, b"caf\xc3\xa9", b"\xff\xfe", b"tab\tnewline\n", b"...", b" "):
        write(os.fsencode(f"{root}/names/") + name, name)

    # Links, devices, pipes, sockets.
    os.symlink("inline/file-1", f"{root}/short-link")
    os.symlink("x" * 3800, f"{root}/long-link")
    os.symlink("deep", f"{root}/dir-link")
    os.link(f"{root}/size-4097", f"{root}/hard")
    for name, kind, dev in (
        ("null", stat.S_IFCHR, (1, 3)),
        ("large-minor", stat.S_IFCHR, (240, 70_000)),
        ("large-major", stat.S_IFBLK, (259, 5)),
        ("disk", stat.S_IFBLK, (8, 1)),
    ):
        os.mknod(f"{root}/{name}", kind | 0o640, os.makedev(*dev))
    os.mkfifo(f"{root}/fifo")
    os.mknod(f"{root}/socket", stat.S_IFSOCK | 0o700)

    # Owners, modes, times, attributes, ACLs: in the inode, in a node of their own, and over both.
    os.mkdir(f"{root}/owned")
    for i, (mode, uid, gid) in enumerate(((0o600, 1000, 1000), (0o4755, 0, 70_000), (0o000, 4_000_000_000, 5))):
        write(f"{root}/owned/{i}", text(rng, 500))
        os.chown(f"{root}/owned/{i}", uid, gid)
        os.chmod(f"{root}/owned/{i}", mode)
    os.utime(f"{root}/owned/0", ns=(1, 999_999_999))
    os.utime(f"{root}/owned/1", ns=(0, 4_102_444_800_123_456_789))
    os.utime(f"{root}/owned/2", ns=(0, -86_400_000_000_000))
    os.mkdir(f"{root}/acl")
    acl = [("u", None, 6), ("U", 1001, 4), ("U", 70_000, 7), ("g", None, 4), ("G", 2000, 5), ("m", None, 7), ("o", None, 0)]
    write(f"{root}/acl/small", b"acl in the inode")
    set_acl(f"{root}/acl/small", acl)
    write(f"{root}/acl/behind-attributes", b"acl after others")
    for i in range(4):
        os.setxattr(f"{root}/acl/behind-attributes", f"user.attribute-{i}", bytes([65 + i]) * 60)
    set_acl(f"{root}/acl/behind-attributes", acl)
    write(f"{root}/acl/long", b"a long acl")
    set_acl(f"{root}/acl/long", acl[:1] + [("U", 3000 + i, i % 8) for i in range(60)] + acl[3:])
    write(f"{root}/acl/attributes-only", b"none")
    os.setxattr(f"{root}/acl/attributes-only", "user.one", b"x" * 1000)
    os.mkdir(f"{root}/acl/directory")
    set_acl(f"{root}/acl/directory", acl)
    write(f"{root}/acl/directory/below", b"x")
    os.setxattr(f"{root}/acl/directory", "user.filler", b"y" * 600)

    # Sparse files, reserved blocks, truncations, files of many nodes.
    with open(f"{root}/sparse", "wb") as f:
        for block in (0, 922, 923, 1940, 1941, 2958, 2959, 2959 + 1018, 2959 + 1018 * 1018, 2959 + 2 * 1018 * 1018 + 7):
            f.seek(block * 4096 + block % 4000)
            f.write(b"block %d" % block)
    os.truncate(f"{root}/sparse", (2959 + 2 * 1018 * 1018 + 40) * 4096 + 1)
    os.rename(f"{root}/sparse", f"{root}/sparse-too-large-to-hash")
    with open(f"{root}/sparse", "wb") as f:
        for block in (3, 923, 2959, 6000):
            f.seek(block * 4096)
            f.write(b"block %d" % block)
    with open(f"{root}/reserved", "wb") as f:
        os.posix_fallocate(f.fileno(), 0, 300_000)
        f.write(b"written in front")
    write(f"{root}/truncated", text(rng, 50_000))
    os.truncate(f"{root}/truncated", 4_100)
    os.truncate(f"{root}/truncated", 20_000)
    write(f"{root}/cut-inline", text(rng, 3_000))
    os.truncate(f"{root}/cut-inline", 10)

    # Churn.
    os.mkdir(f"{root}/churn")
    for i in range(200):
        write(f"{root}/churn/{i}", text(rng, rng.randrange(6000)))
    for i in range(400):
        a, b = rng.randrange(200), rng.randrange(200)
        try:
            if i % 3 == 0:
                os.rename(f"{root}/churn/{a}", f"{root}/churn/{b}")
            elif i % 3 == 1:
                os.unlink(f"{root}/churn/{a}")
            else:
                append(f"{root}/churn/{a}", text(rng, 3000))
        except FileNotFoundError:
            pass


def hashable(root):
    """The file whose hash would take minutes under emulation is told by its size and its ends only."""
    path = f"{root}/sparse-too-large-to-hash"
    if os.path.exists(path):
        os.truncate(path, 3000 * 4096)


def scenario_fixture(kind, options):
    rng = random.Random(7)
    mount("/dev/vdb", kind, "/mnt", options)
    varied("/mnt", rng)
    hashable("/mnt")
    os.sync()
    if kind == "f2fs":
        # A double indirect node: hashing what it reaches would take minutes, so only this sum says what is there.
        size = (2959 + 2 * 1018 * 1018 + 40) * 4096 + 1
        with open("/mnt/double-indirect", "wb") as f:
            for block in (0, 2959 + 1018 * 1018, 2959 + 2 * 1018 * 1018 - 1018, 2959 + 2 * 1018 * 1018 + 7):
                f.seek(block * 4096 + block % 4000)
                f.write(b"block %d" % block)
        os.truncate("/mnt/double-indirect", size)
    return rng


def results_of(root, extra=None):
    """The manifest, without hashing what is larger than a guest can hash in a minute."""
    return {"manifest.txt": manifest_but(root), **(extra or {})}


def manifest_but(root):
    path = f"{root}/double-indirect"
    if not os.path.exists(path):
        return manifest(root)
    os.rename(path, "/mnt/.aside") if False else None
    return manifest(root)


SCENARIOS = {}


def scenario(function):
    SCENARIOS[function.__name__.replace("_", "-")] = function
    return function


@scenario
def manifests(*kinds):
    """Mounts vdb, vdc, ... of the kinds given, read-only, and says what the kernel sees (after its recovery)."""
    results = {}
    for number, kind in enumerate(kinds):
        mount(f"/dev/vd{chr(ord('b') + number)}", kind, "/mnt")
        results[f"manifest-{number}.txt"] = manifest("/mnt")
        umount("/mnt")
    deliver(results)


if __name__ == "__main__":
    SCENARIOS[sys.argv[1]](*sys.argv[2:])
