#!/usr/bin/env bash
# The packages in fresh roots, as root: package-test.sh [FOLDER]    FOLDER holds them (target/debian)
# In a Debian 12 made by mmdebstrap: installed, the command run on an image, its manual shown, its unit verified, the programs for SQL run
# where they are packed, a program built with the library's; removed and purged, after which no file is left. In Debian 13 and, where its
# mirror is reached, Ubuntu the packages and the command; and setup.sh in all of them, where nothing is installed. Then the service of a
# machine that is restarted and upgraded while its disk is used (guest/service.sh). Last what lintian says.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:-target/debian}
[ "$(id -u)" = 0 ] || { echo "package-test.sh: needs root, for chroot"; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
step() { printf '\n== %s\n' "$*"; }

mkdir "$work/tree"
printf 'one\nERROR two\n' > "$work/tree/app.log"
truncate -s 16M "$work/disk.img"
/sbin/mke2fs -q -t ext4 -d "$work/tree" "$work/disk.img"

# Ubuntu's current release, and its last with long support. Debian has no keys of theirs: what is made of them is thrown away.
ubuntu=http://archive.ubuntu.com/ubuntu
others=(trixie)
for suite in stonking resolute; do
  if curl -sfo /dev/null --max-time 20 "$ubuntu/dists/$suite/InRelease"; then others+=("$suite")
  else echo "Ubuntu's $suite: left out, $ubuntu does not have it"; fi
done

# Runs a script in a root that mmdebstrap makes and takes away again, with these files in /packages: in_root SUITE PACKAGES FILE...
in_root() {
  suite=$1 include=$2; shift 2
  case $suite in
    bookworm | trixie) from=() ;;
    *) from=("deb [trusted=yes] $ubuntu $suite main universe") include=apt,$include ;;
  esac
  # shellcheck disable=SC2016 # $1 is the root, in the hook's shell
  mmdebstrap --quiet --mode=root --variant=minbase --include="$include" \
    --customize-hook="mkdir \"\$1/packages\" && cp -r $* \"\$1/packages\" && cp $work/script \"\$1/script\"" \
    --customize-hook='chroot "$1" sh -eu /script' \
    "$suite" /dev/null "${from[@]}"
}
packed=("$folder"/*.deb "$work/disk.img" crates/fsrlib-c/examples/search.c)

step "Debian 12"
cat > "$work/script" <<'SCRIPT'
cd /packages
apt-get install -qq gcc libc6-dev pkg-config >/dev/null
# All files but those that apt, dpkg and man keep for themselves.
files() {
  find / -xdev \( -path /proc -o -path /sys -o -path /run -o -path /tmp -o -path /packages -o -path /var/cache -o -path /var/log \
    -o -path /var/lib/dpkg -o -path /var/lib/apt \) -prune -o ! -type d ! -path /before ! -path /left -print | LC_ALL=C sort
}
files > /before
# As a user's machine, which keeps manual pages.
rm -f /etc/dpkg/dpkg.cfg.d/docker*
apt-get install -qq ./nearside_*.deb >/dev/null
nearside --version
test "$(nearside grep -d disk.img -rn ERROR /)" = "/app.log:2:ERROR two"
man nearside-grep | head -5 | grep -q grep
nearside serve --config /etc/nearside/serve.toml --check
systemd-analyze verify /usr/lib/systemd/system/nearside.service /lib/systemd/system/nearside.service /lib/systemd/system/nearside.socket
test -s /usr/share/bash-completion/completions/nearside
programs=
for name in nearside-sql nearside-ballista; do
  set -- ./"$name"_*.deb
  [ -e "$1" ] || { echo "left out: there is no package $name"; continue; }
  apt-get install -qq "$1" >/dev/null
  programs="$programs $name"
  case $name in
    nearside-sql) test "$(nearside sql -d disk.img "select count(*) from lines('/app.log')")" = "$(printf 'count(*)\n2')" ;;
    nearside-ballista) nearside-ballista --version ;;
  esac
done
apt-get install -qq ./libnearside0_*.deb ./libnearside-dev_*.deb >/dev/null
cc -std=c89 search.c $(pkg-config --cflags --libs nearside) -o shared
ldd shared | grep libnearside.so.0
test "$(./shared disk.img / ERROR 2>/dev/null)" = "/app.log:2:ERROR two"
cc -static search.c $(pkg-config --static --cflags --libs nearside) -o static 2>/dev/null
test "$(./static disk.img / ERROR 2>/dev/null)" = "/app.log:2:ERROR two"
# A file that the user has changed is kept, until it is purged.
echo '# mine' >> /etc/nearside/serve.toml
dpkg --remove libnearside-dev libnearside0 $programs nearside >/dev/null
grep -q mine /etc/nearside/serve.toml
dpkg --purge libnearside-dev libnearside0 $programs nearside >/dev/null
# With what they wanted.
apt-get autoremove -qq --purge >/dev/null
find / -xdev \( -name '*nearside*' -o -path '*/nearside/*' \) ! -path '/packages*' ! -path '/proc*' ! -path '/var/log/*' ! -path '/var/cache/*' > /left
files | LC_ALL=C comm -13 /before - >> /left
cat /left; test ! -s /left
echo "installed, used and purged"
SCRIPT
in_root bookworm systemd,man-db "${packed[@]}"

for suite in "${others[@]}"; do
  step "The packages in a fresh $suite"
  cat > "$work/script" <<'SCRIPT'
cd /packages
apt-get install -qq ./nearside_*.deb ./libnearside0_*.deb >/dev/null
nearside --version
test "$(nearside grep -d disk.img -rn ERROR /)" = "/app.log:2:ERROR two"
dpkg --purge libnearside0 nearside >/dev/null
echo "installed, used and purged"
SCRIPT
  in_root "$suite" systemd "${packed[@]}"
done

for suite in bookworm "${others[@]}"; do
  step "Set-up in a fresh $suite, by nobody and by root"
  cat > "$work/script" <<'SCRIPT'
cd /packages
# What a new user has: neither a compiler, nor make, git or curl. It ends, and says what to install.
ends() {
  code=0; su -s /bin/bash nobody -c 'scripts/setup.sh build' > /said 2>&1 || code=$?
  cat /said; test $code = 1; grep -q "$1" /said
}
ends 'as root: apt-get install gcc libc6-dev$'
apt-get install -qq gcc libc6-dev >/dev/null
ends 'curl is missing, by which Rust comes; as root: apt-get install curl ca-certificates'
grep -q 'make is missing' /said; grep -q 'git is missing' /said; grep -q 'libssl-dev' /said
# Root installs what is missing; where rustup's servers are not reached, it says so.
scripts/setup.sh build > /said 2>&1 && cargo=1 || cargo=
cat /said; test -e /usr/include/openssl/ssl.h; test -x /usr/bin/make
[ "$cargo" ] || grep -q 'neither sh.rustup.rs nor static.rust-lang.org is reached' /said
SCRIPT
  mkdir -p "$work/sources"; cp -r scripts Cargo.toml rust-toolchain.toml "$work/sources"
  in_root "$suite" util-linux "$work"/sources/*
done

step "A Debian 12 with systemd, in QEMU"
scripts/guest/service.sh "$folder"/nearside_*.deb

step "The container"
# In a store of its own; without a machine's own way to run containers: changed root alone.
export STORAGE_DRIVER=vfs BUILDAH_ISOLATION=chroot
printf '#!/bin/sh\nexec buildah --root %s --runroot %s "$@"\n' "$work/containers" "$work/running" > "$work/buildah"
chmod +x "$work/buildah"
CONTAINER="$work/buildah" scripts/container.sh
container=$("$work/buildah" from nearside)
test "$("$work/buildah" run -v "$work:/images" "$container" -- /nearside grep -d /images/disk.img -rn ERROR /)" = "/app.log:2:ERROR two"
test "$("$work/buildah" inspect --type image --format '{{.OCIv1.Config.Entrypoint}}' nearside)" = '[/nearside]'
echo "built from nothing, and used"

step "lintian"
lintian --no-tag-display-limit "$folder"/*.deb || true
step "sizes"
for deb in "$folder"/*.deb; do
  printf '%s: %s KiB packed, %s KiB installed\n' "$(basename "$deb")" "$(($(stat -c %s "$deb") / 1024))" "$(dpkg-deb -f "$deb" Installed-Size)"
done
