#!/usr/bin/env bash
# The package in a Debian 12 with systemd, in QEMU, as root: service.sh NEARSIDE.deb
# Installed, its service enabled, a disk of it used over NVMe/TCP by that Debian's kernel; the machine restarted, the disk's content found
# again; a newer package put in its place while the kernel writes, and verifies, on that disk; then removed. What is done there is
# service-stages.sh. Ends well where all of it did; else the guest's console is shown.
# Needs: mmdebstrap, a Debian mirror, qemu-system-x86_64, mke2fs; some five minutes (software emulation) and 3 GB below TMPDIR.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
deb=$(realpath "$1")
[ "$(id -u)" = 0 ] || { echo "service.sh: needs root, for mmdebstrap"; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The same package with a newer version. Its program is another file than the one that runs.
dpkg-deb --raw-extract "$deb" "$work/newer"
sed -i 's/^Version: .*/&+newer/' "$work/newer/DEBIAN/control"
mkdir "$work/packages"
cp "$deb" "$work/packages/older.deb"
dpkg-deb --root-owner-group --build "$work/newer" "$work/packages/newer.deb" >/dev/null

mmdebstrap --quiet --mode=root --variant=minbase \
  --include=systemd-sysv,udev,linux-image-cloud-amd64,initramfs-tools,nvme-cli,e2fsprogs,fio,procps,"$(dpkg-deb -f "$deb" Depends | sed 's/ *([^)]*)//g; s/ *, */,/g')" \
  bookworm "$work/root"
cp -r "$work/packages" "$work/root/packages"
cp "$here/service-stages.sh" "$work/root/stages"
echo first > "$work/root/stage"
cat > "$work/root/etc/systemd/system/stages.service" <<UNIT
[Unit]
After=multi-user.target
[Service]
Type=oneshot
ExecStart=/bin/sh /stages
StandardOutput=file:/dev/ttyS0
StandardError=inherit
UNIT
ln -s ../stages.service "$work/root/etc/systemd/system/multi-user.target.wants/stages.service"
# No terminal waits for one who logs in.
ln -sf /dev/null "$work/root/etc/systemd/system/serial-getty@ttyS0.service"
cp "$work"/root/boot/vmlinuz-* "$work/vmlinuz"
cp "$work"/root/boot/initrd.img-* "$work/initrd"
mke2fs -q -t ext4 -d "$work/root" "$work/root.img" 2G
rm -rf "$work/root"

# A restart starts the same machine again; the stages end with its power off.
timeout 1800 qemu-system-x86_64 -accel tcg,thread=multi -cpu max -machine q35 -smp 2 -m 1G -nic none -nographic -uuid "$(cat /proc/sys/kernel/random/uuid)" \
  -kernel "$work/vmlinuz" -initrd "$work/initrd" -append "root=/dev/vda rw console=ttyS0 quiet no_timer_check" \
  -drive "file=$work/root.img,format=raw,if=virtio,cache=unsafe" < /dev/null > "$work/console" 2>&1 || true
if ! grep -q '^stages: all done' "$work/console"; then
  cat "$work/console"
  echo "service.sh: the guest did not come to its end"
  exit 1
fi
grep '^stages: ' "$work/console"
