#!/bin/sh
# Fetches the newest QEMU that Debian's trixie-backports have (vfio-user-pci needs 10.1 or later), with all that it links with, into a folder of its
# own; nothing is installed, and the machine's own package lists stay as they are. What is there already is kept.
#   scripts/guest/newest-qemu.sh FOLDER
# Afterwards FOLDER/qemu is the program.
# Needs: mmdebstrap, Debian's key (/usr/share/keyrings/debian-archive-keyring.gpg), a network; some seconds and 180 MB.
set -eu
out=$1
# One at a time: who comes second finds it there.
mkdir -p "$(dirname "$out")"
exec 9> "$out.lock"
flock 9
[ ! -e "$out/qemu" ] || exit 0
rm -rf "$out"
mkdir -p "$out"
out=$(cd "$out" && pwd)
mirror='deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian'
# Unpacked and no more: no package's scripts run. As root or not.
timeout 300 mmdebstrap --quiet --variant=extract --mode="$([ "$(id -u)" = 0 ] && echo root || echo unshare)" \
    --aptopt='APT::Default-Release "trixie-backports"' --include=qemu-system-x86 trixie "$out/tree" \
    "$mirror trixie main" "$mirror trixie-backports main" >&2
cat > "$out/run" <<RUN
#!/bin/sh
# Its own loader, libraries, modules and firmware, and none of this machine's.
export QEMU_MODULE_DIR='$out/tree/usr/lib/x86_64-linux-gnu/qemu'
exec '$out/tree/usr/lib64/ld-linux-x86-64.so.2' --library-path '$out/tree/usr/lib/x86_64-linux-gnu' \\
    '$out/tree/usr/bin/qemu-system-x86_64' -L '$out/tree/usr/share/seabios' -L '$out/tree/usr/share/qemu' "\$@"
RUN
chmod +x "$out/run"
"$out/run" -device vfio-user-pci,help | grep -q "^vfio-user-pci options:"
mv "$out/run" "$out/qemu"
"$out/qemu" --version >&2
