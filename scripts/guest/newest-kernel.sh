#!/bin/sh
# Fetches the newest kernel that Debian has (sid's, the smaller one for virtual machines, 40 MB), into a folder of its own;
# nothing is installed. What is there already is kept.
#   scripts/guest/newest-kernel.sh FOLDER
# Afterwards FOLDER/lib/modules/VERSION has its modules, unpacked, FOLDER/config how it was made, and FOLDER/vmlinuz is it.
# Needs: what sid.sh needs, busybox.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=$1
[ ! -e "$out/vmlinuz" ] || exit 0
rm -rf "$out"
mkdir -p "$out"
out=$(cd "$out" && pwd)
. "$here/sid.sh"
sid_begin "$out/sid"
version=$(sid_cache depends linux-image-cloud-amd64 | sed -n 's/.*Depends: linux-image-\([0-9][^ ]*\)$/\1/p' | head -n 1)
echo "guest: downloading Linux $version" >&2
sid_unpack "linux-base-$version" "linux-binary-$version" "linux-modules-$version"
mv "$out/sid/tree/usr/lib" "$out/lib"
find "$out/lib/modules" -name '*.ko.xz' -exec busybox unxz {} +
mv "$out/lib/modules/$version/config" "$out/"
mv "$out/lib/modules/$version/vmlinuz" "$out/"
rm -rf "$out/sid"
