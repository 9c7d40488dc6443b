#!/bin/sh
# Fetches the newest nvme-cli that Debian has (sid's), with the libraries that it links with and their loader, into a folder of its own; nothing is
# installed, and the machine's own package lists stay as they are. What is there already is kept.
#   scripts/guest/newest-nvme.sh FOLDER
# Afterwards FOLDER/lib/ld.so --library-path FOLDER/lib FOLDER/nvme is the program.
# Needs: apt with Debian's key (/usr/share/keyrings/debian-archive-keyring.gpg), dpkg-deb, a network.
set -eu
out=$1
[ ! -e "$out/nvme" ] || exit 0
rm -rf "$out"
mkdir -p "$out/apt/lists/partial" "$out/apt/cache/archives/partial" "$out/debs" "$out/tree" "$out/lib"
out=$(cd "$out" && pwd)
echo 'deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian sid main' > "$out/apt/sources"
# Of the lists only those of packages; as whoever runs this.
set -- -q -o Dir::Etc::SourceList="$out/apt/sources" -o Dir::Etc::SourceParts=/nonexistent -o Dir::State::Lists="$out/apt/lists" \
    -o Dir::Cache="$out/apt/cache" -o APT::Sandbox::User=root -o Acquire::Languages=none -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false
timeout 300 apt-get "$@" update >&2
libraries=$(apt-cache "$@" depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces --no-enhances nvme-cli |
    sed -n 's/^\(lib[a-z0-9.+-]*\|zlib1g\)$/\1/p' | sort -u)
(cd "$out/debs" && timeout 300 apt-get "$@" download nvme-cli $libraries >&2)
for package in "$out"/debs/*.deb; do dpkg-deb -x "$package" "$out/tree"; done
program=$(find "$out/tree" -type f -path '*bin/nvme')
cp "$(find "$out/tree" -type f -name 'ld-linux*.so.*' | head -n 1)" "$out/lib/ld.so"
folders=$(find "$out/tree" -name '*.so.*' -printf '%h:')
"$out/lib/ld.so" --library-path "$folders" --list "$program" | sed -n 's/.* => \(\/[^ ]*\) .*/\1/p' | while read -r library; do
    [ "$library" -ef "$out/lib/ld.so" ] || cp -L "$library" "$out/lib/$(basename "$library")"
done
"$out/lib/ld.so" --library-path "$out/lib" "$program" version >&2
cp "$program" "$out/nvme"
rm -rf "$out/debs" "$out/apt" "$out/tree"
