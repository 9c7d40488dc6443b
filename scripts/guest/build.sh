#!/bin/sh
# Builds what the guest boots, in a folder: the kernel of Debian's own linux-image package (downloaded and unpacked, not
# installed) and an initramfs of busybox, this machine's Python, and the modules that the tests need.
#   scripts/guest/build.sh [FOLDER]      default: target/guest
# Needs: apt, dpkg-deb, cpio, kmod (depmod, modprobe), busybox-static, python3.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=${1:-$here/../../target/guest}
mkdir -p "$out"
cd "$out"

if ! [ -e vmlinuz ]; then
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
for module in virtio_pci virtio_blk crc32_generic crc32c_generic f2fs ext4; do
    modprobe -d "$PWD/kernel" -S "$version" --show-depends "$module"
done | sed -n 's/^insmod \([^ ]*\).*/\1/p' | awk '!seen[$0]++' > modules.list
: > root/modules/order
while read -r path; do
    cp "$path" root/modules/
    basename "$path" >> root/modules/order
done < modules.list

# Python: the interpreter, what it links with, and the part of its library that the workloads import.
python=$(readlink -f /usr/bin/python3)
name=$(basename "$python")
cp "$python" root/usr/bin/python3
ldd "$python" | sed -n 's/.*[ \t]\(\/[^ ]*\) (.*/\1/p' | while read -r lib; do
    mkdir -p "root$(dirname "$lib")"
    cp -L "$lib" "root$lib"
done
mkdir -p "root/usr/lib/$name"
(cd "/usr/lib/$name" && find . \( -name test -o -name __pycache__ -o -name 'config-*' -o -name idlelib -o -name tkinter \
    -o -name lib2to3 -o -name ensurepip -o -name pydoc_data -o -name lib-dynload -o -name asyncio -o -name unittest \) -prune \
    -o -name '*.py' -print | cpio -pdm --quiet "$OLDPWD/root/usr/lib/$name")

cat > root/init <<'INIT'
#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin:/usr/bin PYTHONDONTWRITEBYTECODE=1
mount -t proc none /proc; mount -t sysfs none /sys; mount -t devtmpfs none /dev
echo /bin/true > /proc/sys/kernel/modprobe
while read -r module; do insmod "/modules/$module"; done < /modules/order
echo "guest: $(uname -r), up $(cut -d' ' -f1 /proc/uptime) s"
python3 -S /job/main.py $(sed -n 's/.*guest=\([^ ]*\).*/\1/p' /proc/cmdline | tr , ' ')
echo "guest: rc=$?"
echo o > /proc/sysrq-trigger
sleep 60
INIT
chmod +x root/init
(cd root && find . | cpio -o -H newc --quiet) > base.cpio
echo "guest: $out: kernel $version, initramfs of $(du -m base.cpio | cut -f1) MB" >&2
