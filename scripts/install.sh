#!/bin/sh
# Installs the command with its completions and manual pages, its units of systemd and the documents of the file that it
# reads, FSRLib's header and libraries, and its pkg-config file:
# install.sh DESTDIR PREFIX [FOLDER]    FOLDER holds what was built (default: target/release)
set -eu
cd "$(dirname "$0")/.."
dest=$1$2
built=${3:-target/release}
# The version of the library's binary interface, which its name (SONAME) has.
abi=$(sed -n 's/^const ABI: &str = "\(.*\)";/\1/p' crates/fsrlib-c/build.rs)
version=$(sed -n '/^version = /{s/.*"\(.*\)"/\1/p;q}' Cargo.toml)
# What is for a debugger stays in the folder that it was built in.
if command -v strip >/dev/null; then stripped() { strip "$1" -o "$3" "$2"; }
else
  stripped() { install "$2" "$3"; }
  echo "install.sh: strip is missing (as root: apt-get install binutils); what is installed is larger by that"
fi
install -d "$dest/bin" "$dest/include" "$dest/lib/pkgconfig"
stripped --strip-all "$built"/nearside "$dest/bin/nearside"
chmod 755 "$dest/bin/nearside"
# `make sql` and `make ballista` build them.
for program in nearside-sql nearside-ballista; do
  [ -e "$built/$program" ] || continue
  stripped --strip-all "$built/$program" "$dest/bin/$program"
  chmod 755 "$dest/bin/$program"
done
install -m 644 crates/fsrlib-c/include/nearside.h "$dest/include/nearside.h"
stripped --strip-debug "$built"/libnearside.a "$dest/lib/libnearside.a"
stripped --strip-unneeded "$built"/libnearside.so "$dest/lib/libnearside.so.$version"
chmod 644 "$dest/lib/libnearside.a" "$dest/lib/libnearside.so.$version"
ln -sf "libnearside.so.$version" "$dest/lib/libnearside.so.$abi"
ln -sf "libnearside.so.$abi" "$dest/lib/libnearside.so"
# Without TLS it needs no OpenSSL.
grep -q 'libssl\.so' "$built"/libnearside.so && without='' || without='/^Requires.private/d'
sed -e "s|@PREFIX@|$2|" -e "s|@VERSION@|$version|" -e "$without" crates/fsrlib-c/nearside.pc.in > "$dest/lib/pkgconfig/nearside.pc"
install -d "$dest/lib/systemd/system" "$dest/share/doc/nearside"
sed -e "s|@PREFIX@|$2|" scripts/nearside.service.in > "$dest/lib/systemd/system/nearside.service"
install -m 644 scripts/nearside.socket "$dest/lib/systemd/system/nearside.socket"
install -m 644 docs/SERVE.md docs/serve.example.toml docs/serve.schema.json docs/grafana.dashboard.json "$dest/share/doc/nearside"
install -d "$dest/share/bash-completion/completions" "$dest/share/zsh/site-functions" \
    "$dest/share/fish/vendor_completions.d" "$dest/share/man/man1"
"$built"/nearside completions bash > "$dest/share/bash-completion/completions/nearside"
"$built"/nearside completions zsh > "$dest/share/zsh/site-functions/_nearside"
"$built"/nearside completions fish > "$dest/share/fish/vendor_completions.d/nearside.fish"
"$built"/nearside man --out "$dest/share/man/man1"
echo "installed to $dest: bin/nearside, include/nearside.h, lib/libnearside.{a,so,so.*}, lib/pkgconfig/nearside.pc, lib/systemd/system/nearside.{service,socket}, completions, manual pages and documents in share"
