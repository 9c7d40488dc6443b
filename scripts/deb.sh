#!/usr/bin/env bash
# Packages for Debian, of what was built: deb.sh [FOLDER [OUT]]    FOLDER: target/release, OUT: target/debian
# nearside (the command, its manual, completions, units and configuration), libnearside0 (FSRLib for programs), libnearside-dev (for who
# builds them); nearside-sql and nearside-ballista, each where its program is in FOLDER. What goes into each is said in the Cargo.toml of
# crates/cli, crates/fsrlib-c, crates/sql and crates/ballista.
set -euo pipefail
cd "$(dirname "$0")/.."
built=${1:-target/release}
out=${2:-target/debian}
root=out/package/root
version=$(sed -n '/^version = /{s/.*"\(.*\)"/\1/p;q}' Cargo.toml)
for wanted in fsrlib-c:libnearside0 sql:nearside; do
  grep -qF "${wanted#*:} (= $version-1)" "crates/${wanted%%:*}/Cargo.toml" \
    || { echo "deb.sh: crates/${wanted%%:*}/Cargo.toml wants ${wanted#*:} in another version than $version"; exit 1; }
done
# When it was last changed, so that the same sources make the same packages.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH
date=$(date -uRd "@$SOURCE_DATE_EPOCH")
rm -rf out/package
# Who takes *.deb would take those of another version too.
for old in "$out"/{nearside,libnearside0,libnearside-dev,nearside-sql,nearside-ballista}_*.deb; do
  [[ $old = *_"$version"-1_*.deb ]] || rm -f "$old"
done
scripts/install.sh "$root" /usr "$built" >/dev/null
mkdir -p out/package/scripts "$out"
cp "$root"/usr/lib/systemd/system/nearside.{service,socket} out/package/scripts/
names=(nearside libnearside0 libnearside-dev) programs=()
for crate in sql ballista; do
  # Of one that was built once, and is not there now, no package stays.
  if [ -e "$root/usr/bin/nearside-$crate" ]; then programs+=("nearside-$crate"); else rm -f "$out/nearside-$crate"_*.deb; fi
done
for name in "${names[@]}" "${programs[@]}"; do
  printf '%s (%s-1) unstable; urgency=medium\n\n  * See CHANGELOG.md.\n\n -- %s  %s\n' "$name" "$version" \
    "The Nearside developers <nearside@example.invalid>" "$date" > "out/package/$name.changelog"
done
make() { cargo deb --no-build --no-strip --locked --output "$out" "$@"; }
make -p nearside-cli
for program in "${programs[@]}"; do make -p "$program"; done
make -p nearside-fsrlib-c
make -p nearside-fsrlib-c --variant shared
# Which package a program needs that is linked with the library: cargo-deb has no place for that.
shared=$(echo "$out"/libnearside0_"$version"-1_*.deb)
dpkg-deb --raw-extract "$shared" out/package/shared
chmod 644 out/package/shared/usr/lib/libnearside.so.*.*
grep -q '^Depends: .*libc6' out/package/shared/DEBIAN/control || { echo "deb.sh: $shared says of no package that it needs it"; exit 1; }
echo "libnearside 0 libnearside0 (>= $version)" > out/package/shared/DEBIAN/shlibs
dpkg-deb --root-owner-group --build out/package/shared "$shared" >/dev/null
