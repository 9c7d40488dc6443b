"""What runs in the guest: /job/main.py SCENARIO [DEVICE FILE-SYSTEM]...

Each scenario mounts the volumes it is given (vdb, vdc, ...), works on them through the guest's own kernel and leaves its
results as a tar on /dev/vda. Everything is seeded: the same scenario makes the same tree.

A manifest has one line per path, fields separated by tabs: path, st_mode in octal, uid, gid, links, size ("-" for a
directory), mtime as seconds.nanoseconds, rdev as major:minor, SHA-256 of the content, link target, access ACL; "-" where a
field does not apply. Bytes that are not printable ASCII are written \\xNN."""

import array
import fcntl
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
        for block in (0, 922, 923, 1940, 1941, 2958, 2959, 2959 + 1018, 6000):
            f.seek(block * 4096 + block % 4000)
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


# Blocks of the large sparse file that hold data: on both sides of each step of the node tree.
FAR = (0, 2958 + 1018 * 1018, 2959 + 1018 * 1018, 2958 + 2 * 1018 * 1018, 2959 + 2 * 1018 * 1018, 2959 + 3 * 1018 * 1018 + 7)


def far(root):
    """A file of a double indirect node: 12 GB, of which six pieces are data. Not in the manifest (hashing it would take
    minutes under emulation): a test asks for these pieces. The root keeps its time."""
    before = os.stat(root)
    with open(f"{root}/.far", "wb") as f:
        for block in FAR:
            f.seek(block * 4096)
            f.write(b"block %d\n" % block)
    os.utime(root, ns=(before.st_atime_ns, before.st_mtime_ns))


SCENARIOS = {}


def scenario(function):
    SCENARIOS[function.__name__.replace("_", "-")] = function
    return function


@scenario
def fixture(kind, options="noatime"):
    """One of each thing, unmounted cleanly."""
    mount("/dev/vdb", kind, "/mnt", options.replace("+", ","))
    varied("/mnt", random.Random(7))
    results = {"manifest.txt": manifest("/mnt")}
    far("/mnt")
    umount("/mnt")
    deliver(results)


@scenario
def synced(kind):
    """A volume that lost power after a sync and some writing that was not synced: summaries of the normal form, and, by
    hundreds of blocks in each log, too many for the compact one."""
    rng = random.Random(8)
    mount("/dev/vdb", kind, "/mnt")
    os.mkdir("/mnt/large")
    for i in range(2500):
        write(f"/mnt/large/{'n' * (i % 180)}{i}", b"")
    for i in range(45):
        write(f"/mnt/warm-{i}.txt", text(rng, 45_000))
        write(f"/mnt/cold-{i}.mp4", text(rng, 45_000))
    for i in range(0, 2500, 3):
        os.unlink(f"/mnt/large/{'n' * (i % 180)}{i}")
    os.sync()
    results = {"manifest.txt": manifest("/mnt")}
    write("/mnt/lost", b"never synced")
    os.rename("/mnt/warm-1.txt", "/mnt/renamed-not-synced")
    power_off(results)


@scenario
def fsynced(kind):
    """A volume that lost power after fsyncs since its last checkpoint: what they wrote is in the roll-forward log."""
    rng = random.Random(9)
    mount("/dev/vdb", kind, "/mnt")
    os.mkdir("/mnt/directory")
    for i in range(30):
        write(f"/mnt/directory/{i}", text(rng, 1000 * i))
    os.sync()
    results = {"manifest.txt": manifest("/mnt")}
    append("/mnt/directory/5", b"appended and fsynced\n", sync=True)
    append("/mnt/directory/25", text(rng, 100_000), sync=True)
    write("/mnt/directory/new", b"new and fsynced\n", sync=True)
    power_off(results)


@scenario
def fuzzed(kind):
    """A small volume that still has one of each structure."""
    rng = random.Random(10)
    mount("/dev/vdb", kind, "/mnt")
    os.mkdir("/mnt/inline")
    for i in range(5):
        write(f"/mnt/inline/{i}", text(rng, 10 ** i))
    os.mkdir("/mnt/blocks")
    for i in range(120):
        os.link("/mnt/inline/1", f"/mnt/blocks/{'n' * (i % 60)}{i}")
    os.symlink("inline/1", "/mnt/link")
    os.symlink("x" * 3800, "/mnt/long-link")
    os.mknod("/mnt/null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    acl = [("u", None, 6), ("U", 1001, 4), ("g", None, 4), ("m", None, 7), ("o", None, 0)]
    write("/mnt/acl", b"x")
    set_acl("/mnt/acl", acl)
    write("/mnt/long-acl", b"x")
    set_acl("/mnt/long-acl", acl[:1] + [("U", 3000 + i, i % 8) for i in range(60)] + acl[2:])
    far("/mnt")
    os.sync()
    append("/mnt/inline/2", b"fsynced", sync=True)
    power_off({})


@scenario
def trace(kind, steps):
    """A seeded life of a volume in steps, each ended by sync and a mark: the step's number, little-endian, in the disk's
    last 4096 bytes, behind the volume. The manifests say what was there at each mark."""
    rng = random.Random(11)
    mount("/dev/vdb", kind, "/mnt")
    results = {}
    files, made = [], 0
    os.mkdir("/mnt/log")
    os.mkdir("/mnt/box")
    with open("/dev/vdb", "r+b", buffering=0) as disk:
        for step in range(int(steps)):
            for _ in range(rng.randrange(4, 14)):
                choice = rng.randrange(12)
                if choice < 4 or not files:
                    made += 1
                    folder = rng.choice(["/mnt/log", "/mnt/box", f"/mnt/box/d{made % 5}"])
                    os.makedirs(folder, exist_ok=True)
                    files.append(f"{folder}/file-{made}.txt")
                    write(files[-1], text(rng, rng.choice([20, 500, 3000, 9000, 40_000])), sync=choice == 0)
                elif choice < 8:
                    append(rng.choice(files), b"step %d: " % step + text(rng, rng.choice([30, 800, 6000])), sync=choice == 4)
                elif choice == 8:
                    path = files.pop(rng.randrange(len(files)))
                    made += 1
                    files.append(f"/mnt/log/renamed-{made}.txt")
                    os.rename(path, files[-1])
                elif choice == 9:
                    os.unlink(files.pop(rng.randrange(len(files))))
                elif choice == 10:
                    os.truncate(rng.choice(files), rng.choice([0, 100, 5000, 12_000]))
                else:
                    made += 1
                    files.append(f"/mnt/box/link-{made}.txt")
                    os.link(rng.choice(files[:-1] or files), files[-1]) if len(files) > 1 else write(files[-1], b"one\n")
            if step == 3:
                os.mkdir("/mnt/large")
                for i in range(600):
                    write(f"/mnt/large/a name long enough for several slots {i}", b"")
            if step == 6:
                for i in range(0, 600, 2):
                    os.unlink(f"/mnt/large/a name long enough for several slots {i}")
            os.sync()
            disk.seek(-4096, os.SEEK_END)
            disk.write(step.to_bytes(8, "little") + bytes(4088))
            os.fsync(disk.fileno())
            results[f"mark-{step}.txt"] = manifest("/mnt")
    umount("/mnt")
    deliver(results)


class Life:
    """A seeded life of a volume: every kind of change, each followed by an fsync, an fdatasync or nothing."""

    def __init__(self, root, rng):
        self.root, self.rng, self.made = root, rng, 0
        self.folders = [root] + [f"{root}/{name}" for name in ("a", "b", "a/c", "large")]
        self.files, self.empty = [], [f"{root}/empty-{i}" for i in range(9)]
        for folder in self.folders[1:] + self.empty:
            os.mkdir(folder)
        for i in range(120):
            write(f"{root}/large/a name long enough for several slots {i}", text(rng, rng.choice([0, 50, 5000])))
        for _ in range(20):
            self.create()

    def name(self, like=None):
        """A new name; of a compressed file (by its ending) where the other file is one."""
        self.made += 1
        compressed = like.endswith(".cmp") if like else self.rng.random() < 0.1
        ending = ".cmp" if compressed else ""
        return f"{self.rng.choice(self.folders)}/{'n' * self.rng.randrange(20)}{self.made}{ending}"

    def create(self, path=None):
        path = path or self.name()
        if path not in self.files:
            self.files.append(path)
        size = self.rng.choice([0, 20, 700, 3000, 3480, 9000, 30_000])
        with open(path, "wb", buffering=0) as f:
            if self.rng.random() < 0.07:  # behind the inode's own addresses
                f.seek(self.rng.choice([3_600_000, 3_800_000, 3_800_000, 3_800_000, 7_900_000, 12_100_000]))
            f.write(text(self.rng, size))
            self.settle(f.fileno())
        return path

    def settle(self, fd):
        how = self.rng.randrange(5)
        if how < 2:
            os.fsync(fd)
        elif how == 2:
            os.fdatasync(fd)

    def change(self, path, fd):
        rng, size = self.rng, os.fstat(fd).st_size
        kind = rng.randrange(12)
        if kind < 3:
            os.pwrite(fd, text(rng, rng.choice([10, 800, 6000, 50_000])), size)
        elif kind < 5:
            os.pwrite(fd, text(rng, rng.choice([10, 5000, 60_000])), rng.randrange(size + 1))
        elif kind == 5:
            os.ftruncate(fd, rng.choice([0, 10, 3000, 5000, size // 2, size + 20_000]))
        elif kind == 6:
            os.fchmod(fd, rng.choice([0o600, 0o644, 0o4755, 0o400]))
            os.fchown(fd, rng.choice([0, 1000, 70_000]), rng.choice([0, 1000, 4_000_000_000]))
        elif kind == 7:
            os.utime(fd, ns=(0, rng.randrange(1 << 60)))
        elif kind == 8:
            os.setxattr(path, f"user.{rng.randrange(4)}", bytes([65 + rng.randrange(20)]) * rng.choice([10, 90, 1500]))
        elif kind == 9:
            entries = [("U", 1000 + i, rng.randrange(8)) for i in range(rng.choice([1, 5, 60]))]
            set_acl(path, [("u", None, 6), *entries, ("g", None, 4), ("m", None, 7), ("o", None, 0)])
        elif kind == 10:
            for name in os.listxattr(path):
                os.removexattr(path, name)
        else:
            os.posix_fallocate(fd, rng.randrange(size + 1), rng.choice([5000, 50_000]))

    def step(self):
        rng = self.rng
        kind = rng.randrange(80)
        path = rng.choice(self.files)
        if kind < 20:
            self.create()
        elif kind < 56:
            with open(path, "r+b", buffering=0) as f:
                for _ in range(rng.randrange(1, 4)):
                    self.change(path, f.fileno())
                self.settle(f.fileno())
        elif kind < 66:  # the same name, another inode
            os.unlink(path)
            self.create(path)
        elif kind < 70:
            os.unlink(path)
            self.files.remove(path)
        elif kind < 73:
            self.rename(path)
        elif kind == 73:
            self.files.append(self.name(path))
            os.link(path, self.files[-1])
        elif kind == 74:
            os.symlink(path, self.name("-link"))
        elif kind == 75:
            self.made += 1
            self.folders.append(f"{rng.choice(self.folders[:4])}/folder-{self.made}")
            os.mkdir(self.folders[-1])
        elif kind == 76 and self.empty:  # a file where a directory was
            os.rmdir(self.empty[0])
            self.create(self.empty.pop(0))
        elif kind == 77:
            os.unlink(f"{self.root}/large/{rng.choice(os.listdir(self.root + '/large'))}")
            self.files = [f for f in self.files if os.path.exists(f)]
        elif kind == 78 and rng.random() < 0.3:
            os.sync()

    def rename(self, path):
        self.files.remove(path)
        if self.rng.random() < 0.5:
            to = self.rng.choice([f for f in self.files if f.endswith(".cmp") == path.endswith(".cmp")])
        else:
            to = self.name(path)
            self.files.append(to)
        os.rename(path, to)
        if self.rng.random() < 0.5:  # the old name again, of another inode
            self.create(path)


@scenario
def lives(kind, seed, steps, *options):
    """Volumes of which every write is recorded, for power cuts at any of them; vdb with the first options, and so on."""
    for name in ("dirty_writeback_centisecs", "dirty_expire_centisecs"):
        with open(f"/proc/sys/vm/{name}", "w") as f:
            f.write("20")  # nodes that no fsync wrote come into the log as well
    for number, words in enumerate(options):
        device, at = f"/dev/vd{chr(ord('b') + number)}", f"/mnt/{number}"
        # The block layer would make one write of many: here each block is one.
        for limit, value in (("max_sectors_kb", "4"), ("nomerges", "2")):
            with open(f"/sys/block/{device[5:]}/queue/{limit}", "w") as f:
                f.write(value)
        words = words.replace("+", ",")
        mount(device, kind, at, words)
        life = Life(at, random.Random(f"{seed}-{number}"))
        # The last checkpoint is then one with the mark of an unmount.
        umount(at)
        mount(device, kind, at, words)
        for _ in range(int(steps)):
            life.step()
    power_off({})


@scenario
def manifests(*kinds):
    """Mounts vdb, vdc, ... of the kinds given and says what the kernel sees (after its recovery)."""
    results = {}
    for number, kind in enumerate(kinds):
        mount(f"/dev/vd{chr(ord('b') + number)}", kind, "/mnt")
        results[f"manifest-{number}.txt"] = manifest("/mnt")
        umount("/mnt")
    deliver(results)


def part(disk, number, start, length):
    """Makes a part of a disk a device of its own, by no table: BLKPG of linux/blkpg.h. Without a length, no more."""
    fields = array.array("B", struct.pack("<qqi64s64s4x", start, length, number, b"", b""))
    address, size = fields.buffer_info()
    fcntl.ioctl(disk, 0x1269, struct.pack("<iii4xQ", 1 if length else 2, 0, size, address))


@scenario
def points(kind, count, length):
    """Mounts so many volumes that lie one behind the other on vdb and says what the kernel sees of each (after its recovery),
    or that it refuses it, and what it said meanwhile."""
    results = {"release.txt": os.uname().release}
    os.system("dmesg -c > /dev/null")
    with open("/dev/vdb", "rb", buffering=0) as disk:
        for number in range(int(count)):
            part(disk, 1, number * int(length), int(length))
            try:
                mount("/dev/vdb1", kind, "/mnt")
                results[f"manifest-{number}.txt"] = manifest("/mnt")
                umount("/mnt")
            except OSError as refused:
                results[f"manifest-{number}.txt"] = f"# refused: {refused}\n"
            part(disk, 1, 0, 0)
            with os.popen("dmesg -c") as log:
                results[f"kernel-{number}.txt"] = log.read()
    deliver(results)


if __name__ == "__main__":
    SCENARIOS[sys.argv[1]](*sys.argv[2:])
