#!/bin/sh
# Boots the guest of build.sh once, without a network, and runs a program of this folder in it.
#   scripts/guest/boot.sh SCENARIO OUT.img DISK.img[,blklog=LOG]...
# The guest runs scenarios.py with SCENARIO (words separated by commas). /dev/vda is OUT, to which it writes a tar of its
# results; the others are vdb, vdc, ... With `blklog` every write and flush of that disk is recorded in LOG, in order.
# The result is the tar. Software emulation: a boot takes some seconds, and nothing measured here is a performance figure.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
guest=${NEARSIDE_GUEST:-$here/../../target/guest}
scenario=$1 out=$2
shift 2
[ -e "$guest/base.cpio" ] || "$here/build.sh" "$guest"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/job"
cp "$here/scenarios.py" "$work/job/main.py"
(cd "$work" && echo job > list && echo job/main.py >> list && cpio -o -H newc --quiet < list > script.cpio)
cat "$guest/base.cpio" "$work/script.cpio" > "$work/initrd"

rm -f "$out"
truncate -s 32M "$out"
set -- "$out" "$@"
arguments= number=0
for disk in "$@"; do
    file=${disk%%,blklog=*}
    arguments="$arguments -blockdev driver=file,filename=$file,node-name=f$number,discard=unmap"
    arguments="$arguments -blockdev driver=raw,file=f$number,node-name=r$number,discard=unmap"
    node=r$number
    if [ "$file" != "$disk" ]; then
        log=${disk##*,blklog=}
        rm -f "$log"
        : > "$log"
        arguments="$arguments -blockdev driver=file,filename=$log,node-name=l$number"
        arguments="$arguments -blockdev driver=blklogwrites,node-name=b$number,file=r$number,log=l$number,log-sector-size=512"
        node=b$number
    fi
    arguments="$arguments -device virtio-blk-pci,drive=$node,logical_block_size=512"
    number=$((number + 1))
done

# On a machine that is busy with other things the guest would find its timer too slow, and stop: no_timer_check.
# shellcheck disable=SC2086 # the arguments are words
timeout 900 qemu-system-x86_64 -accel tcg,thread=multi -cpu max -machine q35 -smp 2 -m 1G -nic none -nographic -no-reboot \
    -kernel "$guest/vmlinuz" -initrd "$work/initrd" \
    -append "console=ttyS0 quiet panic=-1 no_timer_check guest=$scenario" $arguments < /dev/null > "$work/console" 2>&1 || true
if ! grep -q 'guest: rc=0' "$work/console" && ! grep -q 'guest: power off' "$work/console"; then
    cat "$work/console" >&2
    echo "guest: $scenario failed" >&2
    exit 1
fi
grep 'guest: ' "$work/console" >&2 || true
