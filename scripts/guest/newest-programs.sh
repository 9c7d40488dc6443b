#!/bin/sh
# Fetches the newest of programs that Debian has (sid's), with the libraries that they link with and their loader, into a
# folder of its own; nothing is installed. What is there already is kept.
#   scripts/guest/newest-programs.sh FOLDER PACKAGE:PROGRAM...
# Afterwards FOLDER/lib/ld.so --library-path FOLDER/lib FOLDER/PROGRAM is one.
# Needs: what sid.sh needs.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=$1
shift
missing=
for pair in "$@"; do [ -e "$out/${pair#*:}" ] || missing=$pair; done
[ -n "$missing" ] || exit 0
rm -rf "$out"
mkdir -p "$out/lib"
out=$(cd "$out" && pwd)
. "$here/sid.sh"
sid_begin "$out/sid"
packages=$(for pair in "$@"; do echo "${pair%%:*}"; done)
# shellcheck disable=SC2086 # the packages are words
libraries=$(sid_cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces --no-enhances $packages |
    sed -n 's/^\(lib[a-z0-9.+-]*\|zlib1g\)$/\1/p' | sort -u)
# shellcheck disable=SC2086
sid_unpack $packages $libraries
tree=$out/sid/tree
cp "$(find "$tree" -type f -name 'ld-linux*.so.*' | head -n 1)" "$out/lib/ld.so"
run() { "$out/lib/ld.so" --library-path "$out/lib" "$out/$@"; }
folders=$(find "$tree" -name '*.so.*' -printf '%h\n' | sort -u | tr '\n' ':')
for pair in "$@"; do
    program=$(find "$tree" -type f -path "*bin/${pair#*:}")
    "$out/lib/ld.so" --library-path "$folders" --list "$program" | sed -n 's/.* => \(\/[^ ]*\) .*/\1/p' | while read -r library; do
        [ "$library" -ef "$out/lib/ld.so" ] || cp -L "$library" "$out/lib/$(basename "$library")"
    done
    mv "$program" "$out/"
    # It links with nothing else, and runs. LVM's would look for the device mapper to say its version.
    run "${pair#*:}" --version >&2 || run "${pair#*:}" --help > /dev/null 2>&1
done
rm -rf "$out/sid"
