#!/bin/sh
# Builds what the guest boots, in a folder: the kernel of Debian's own linux-image package (downloaded and unpacked, not
# installed) and an initramfs of busybox, this machine's Python, the modules that the tests need, and those of this machine's
# storage tools that it has (nvme, fio, mkfs and fsck of ext4, F2FS and XFS, mdadm, ndctl); nvme and lvm are also there as
# Debian's sid has them, where they can be fetched.
#   scripts/guest/build.sh [FOLDER]               default: target/guest
#   scripts/guest/build.sh --newest [FOLDER]      default: target/guest-newest
# With --newest it is a guest for what this machine's Debian is too old for, NVMe's authentication and TLS: the kernel, nvme,
# tlshd and keyctl are those of Debian's sid, and of this machine's tools it has fio only. Where they cannot be fetched it
# ends with 3.
# Needs: apt, dpkg-deb, cpio, kmod (depmod, modprobe), busybox-static, python3.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
newest=
[ "${1:-}" != --newest ] || { newest=-newest; shift; }
out=${1:-$here/../../target/guest$newest}
mkdir -p "$out"
cd "$out"
# One at a time; and no guest boots what is half written.
exec 9> lock
flock 9

if [ "$newest" ]; then
    "$here/newest-kernel.sh" kernel || exit 3
    cp kernel/vmlinuz vmlinuz
    for option in NVME_HOST_AUTH NVME_TCP_TLS; do
        grep -q "^CONFIG_$option=y" kernel/config || { echo "guest: this kernel is made without $option" >&2; exit 1; }
    done
elif ! [ -e vmlinuz ]; then
    package=$(apt-cache depends linux-image-amd64 | sed -n 's/.*Depends: \(linux-image-[0-9][^ ]*\)$/\1/p' | head -n 1)
    echo "guest: downloading $package" >&2
    rm -rf kernel && mkdir kernel
    (cd kernel && apt-get -q download "$package" >&2 && dpkg-deb -x ./*.deb . && rm ./*.deb)
    cp kernel/boot/vmlinuz-* vmlinuz
fi
version=$(ls kernel/lib/modules)
[ -e "kernel/lib/modules/$version/modules.dep" ] || depmod -b kernel "$version"

rm -rf root && mkdir -p root/bin root/sbin root/proc root/sys root/dev root/mnt root/tmp root/usr/bin root/usr/lib root/modules
cp "$(command -v busybox)" root/bin/busybox

# The modules, in the order in which they load.
modules="virtio_pci virtio_blk virtio_net crc32_generic crc32c_generic f2fs ext4 xfs nvme_tcp nvme
    nfit nd_pmem dax_pmem device_dax raid1 dm_mod dm_snapshot"
tools="nvme fio mke2fs e2fsck resize2fs mkfs.f2fs fsck.f2fs mkfs.xfs xfs_repair mdadm ndctl"
if [ "$newest" ]; then
    # Of ciphers those of TLS 1.3; nvmet and a disk of memory, so that the host can be tried out on a target of its own.
    modules="virtio_pci virtio_net nvme_tcp tls aesni_intel gcm nvmet_tcp brd"
    tools=fio
fi
for module in $modules; do
    modprobe -d "$PWD/kernel" -S "$version" --show-depends "$module"
done | sed -n 's/^insmod \([^ ]*\).*/\1/p' > wanted.list
# modprobe leaves out what this machine's own kernel has built in: modules.dep says all that each needs, the last first.
awk -v below="$PWD/kernel/lib/modules/$version/" '
    NR == FNR { needs[below substr($1, 1, length($1) - 1)] = $0; next }
    { for (i = split(needs[$1], need, " "); i > 1; i--) print below need[i]; print $1 }
' "kernel/lib/modules/$version/modules.dep" wanted.list | awk '!seen[$0]++' > modules.list
: > root/modules/order
while read -r path; do
    cp "$path" root/modules/
    basename "$path" >> root/modules/order
done < modules.list

# A program and what it links with.
program() {
    cp -L "$1" "root/usr/bin/$2"
    ldd "$1" | sed -n 's/.*[ \t]\(\/[^ ]*\) (.*/\1/p' | while read -r lib; do
        mkdir -p "root$(dirname "$lib")"
        [ -e "root$lib" ] || cp -L "$lib" "root$lib"
    done
}
PATH=$PATH:/usr/sbin:/sbin
for tool in $tools; do
    if path=$(command -v "$tool"); then program "$path" "$tool"; fi
done
[ ! -e /etc/mke2fs.conf ] || { mkdir -p root/etc; cp /etc/mke2fs.conf root/etc/; }
# nvme-cli connects only where a host has a name of its own.
mkdir -p root/etc/nvme
echo nqn.2014-08.org.nvmexpress:uuid:00000000-0000-4000-8000-00000000c0de > root/etc/nvme/hostnqn
echo 00000000-0000-4000-8000-00000000c0de > root/etc/nvme/hostid

# The newest nvme-cli there is, where it can be had; it is nvme-newest beside this machine's own. And LVM's program, for a
# machine that has none.
takes() { # folder, programs
    folder=$1
    shift
    cp -r "$folder" "root/$folder"
    for pair in "$@"; do
        program=${pair#*:}
        command=$program
        [ ! -e "root/usr/bin/$program" ] || command=$program-newest
        printf '#!/bin/sh\nexec /%s/lib/ld.so --library-path /%s/lib /%s/%s "$@"\n' "$folder" "$folder" "$folder" "$program" > "root/usr/bin/$command"
        chmod +x "root/usr/bin/$command"
    done
}
programs=nvme-cli:nvme
[ -z "$newest" ] || programs="nvme-cli:nvme ktls-utils:tlshd keyutils:keyctl"
if [ -z "$newest" ]; then
    if "$here/newest-programs.sh" newest-lvm lvm2:lvm; then
        takes newest-lvm lvm2:lvm
    else
        echo "guest: no lvm could be fetched" >&2
    fi
fi
# shellcheck disable=SC2086 # the programs are words
if "$here/newest-programs.sh" newest $programs; then
    # shellcheck disable=SC2086
    takes newest $programs
elif [ "$newest" ]; then
    exit 3
else
    echo "guest: no newer nvme-cli could be fetched" >&2
fi
if [ "$newest" ]; then
    # tlshd says of each handshake whose key it took; and it asks for the peer's name, which is to be found at once.
    mkdir -p root/etc/tlshd
    printf '[debug]\nloglevel=1\n[authenticate]\nkeyrings=.nvme\n' > root/etc/tlshd/config
    printf '127.0.0.1 localhost\n10.0.2.2 machine\n' > root/etc/hosts
fi

# Python: the interpreter, and the part of its library that the workloads import.
python=$(readlink -f /usr/bin/python3)
name=$(basename "$python")
program "$python" python3
mkdir -p "root/usr/lib/$name"
(cd "/usr/lib/$name" && find . \( -name test -o -name __pycache__ -o -name 'config-*' -o -name idlelib -o -name tkinter \
    -o -name lib2to3 -o -name ensurepip -o -name pydoc_data -o -name lib-dynload -o -name asyncio -o -name unittest \) -prune \
    -o -name '*.py' -print | cpio -pdm --quiet "$OLDPWD/root/usr/lib/$name")

cat > root/init <<'INIT'
#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/usr/bin:/bin PYTHONDONTWRITEBYTECODE=1
mount -t proc none /proc; mount -t sysfs none /sys; mount -t devtmpfs none /dev
echo /bin/true > /proc/sys/kernel/modprobe
while read -r module; do insmod "/modules/$module"; done < /modules/order
# An initramfs without a job is there for the root file system, whose init goes on.
if ! [ -e /job/main.py ]; then
    uuid=$(sed -n 's/.*root=UUID=\([^ ]*\).*/\1/p' /proc/cmdline)
    until device=$(findfs "UUID=$uuid"); do sleep 0.1; done
    mount -t ext4 "$device" /mnt
    exec switch_root /mnt /init
fi
mount -t tmpfs none /tmp
echo "guest: $(uname -r), up $(cut -d' ' -f1 /proc/uptime) s"
# What it is to do is on the kernel's command line, or is the machine's serial number.
asked=$(cat /proc/cmdline /sys/class/dmi/id/product_serial | sed -n 's/.*guest=\([^ ]*\).*/\1/p' | head -n 1)
python3 -S /job/main.py $(echo "$asked" | tr , ' ')
echo "guest: rc=$?"
sync
echo o > /proc/sysrq-trigger
sleep 60
INIT
chmod +x root/init
(cd root && find . | cpio -o -H newc --quiet) > base.cpio.new
mv base.cpio.new base.cpio
echo "guest: $out: kernel $version, initramfs of $(du -m base.cpio | cut -f1) MB" >&2
