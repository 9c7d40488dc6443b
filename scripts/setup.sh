#!/usr/bin/env bash
# Brings a fresh Debian or Ubuntu machine to where WHAT (build, demo, test, bench, studies, fuzz, sanitize, deb, static, wheel, package-test) can
# run, and says what it does. It needs nothing but bash and what every such machine has: not make, not git, not curl.
# Installs only what is missing. Without root and without sudo it installs no package and says which are missing. Where a compiler or
# cargo is among them it ends there (1); else it goes on, and what needs the others is left out later, by name.
set -euo pipefail
cd "$(dirname "$0")/.."
kinds="build|demo|test|bench|studies|fuzz|sanitize|deb|static|wheel|package-test"
what=${1:-}
case "|$kinds|" in *"|$what|"*) ;; *) what= ;; esac
[ -n "$what" ] || { echo "usage: setup.sh $kinds" >&2; exit 2; }
# Where rustup puts cargo, which a shell that was there before does not know yet.
export PATH="${CARGO_HOME:-${HOME:-/root}/.cargo}/bin:$PATH"

say() { printf '[setup] %s\n' "$*"; }

# A package is missing when the file it brings is.
wanted() {
  echo "gcc:/usr/bin/cc libc6-dev:/usr/include/stdio.h make:/usr/bin/make"
  # TLS is OpenSSL's.
  case $what in static) ;; *) echo "libssl-dev:/usr/include/openssl/ssl.h pkg-config:/usr/bin/pkg-config" ;; esac
  # Records say of which commit they are.
  case $what in test|bench|studies) echo "git:/usr/bin/git" ;; esac
  case $what in deb) echo "dpkg-dev:/usr/bin/dpkg-shlibdeps binutils:/usr/bin/strip" ;; esac
  case $what in wheel|bench) echo "python3:/usr/bin/python3 python3-venv:/usr/share/doc/python3-venv" ;; esac
  case $what in package-test) echo "mmdebstrap:/usr/bin/mmdebstrap lintian:/usr/bin/lintian buildah:/usr/bin/buildah e2fsprogs:/sbin/mke2fs qemu-system-x86:/usr/bin/qemu-system-x86_64" ;; esac
  command -v cargo >/dev/null || echo "curl:/usr/bin/curl ca-certificates:/etc/ssl/certs/ca-certificates.crt"
  case $what in demo|test|bench|studies|sanitize) echo "e2fsprogs:/sbin/mke2fs f2fs-tools:/sbin/mkfs.f2fs mount:/bin/mount" ;; esac
  case $what in test|bench) echo "ripgrep:/usr/bin/rg yara:/usr/bin/yara" ;; esac
  case $what in test)
    # The library's header, as C++ reads it, and what is in it.
    echo "g++:/usr/bin/c++ libarchive-tools:/usr/bin/bsdtar"
    echo "fio:/usr/bin/fio blktrace:/usr/bin/blkparse acl:/usr/bin/setfacl attr:/usr/bin/setfattr fdisk:/sbin/sfdisk"
    echo "keyutils:/usr/bin/keyctl openssl:/usr/bin/openssl groff-base:/usr/bin/groff sleuthkit:/usr/bin/fls systemd:/usr/bin/systemd-analyze"
    echo "fuse3:/usr/bin/fusermount3 chromium-headless-shell:/usr/bin/chromium-headless-shell"
    # Shells that complete the command's words.
    echo "zsh:/usr/bin/zsh fish:/usr/bin/fish"
    # Readers of OpenMetrics.
    echo "prometheus:/usr/bin/promtool python3-prometheus-client:/usr/lib/python3/dist-packages/prometheus_client"
    # A stock Linux as host, under QEMU.
    echo "qemu-system-x86:/usr/bin/qemu-system-x86_64 qemu-utils:/usr/bin/qemu-io nvme-cli:/usr/sbin/nvme busybox-static:/bin/busybox cpio:/usr/bin/cpio"
    echo "mmdebstrap:/usr/bin/mmdebstrap xfsprogs:/sbin/mkfs.xfs mdadm:/sbin/mdadm"
    # Persistent memory: its programs, and a guest's.
    echo "libpmem1:/usr/lib/$(uname -m)-linux-gnu/libpmem.so.1 ndctl:/usr/bin/ndctl"
    # A guest that boots from the drive.
    echo "grub-common:/usr/bin/grub-mkimage grub-pc-bin:/usr/lib/grub/i386-pc/boot.img"
    # Applications on a drive.
    echo "rocksdb-tools:/usr/bin/db_bench memcached:/usr/bin/memcached redis-server:/usr/bin/redis-server postgresql:/usr/bin/pgbench"
    echo "kmod:/sbin/depmod python3:/usr/bin/python3 python3-venv:/usr/share/doc/python3-venv python3-numpy:/usr/lib/python3/dist-packages/numpy binutils:/usr/bin/strip" ;;
  esac
}

missing=()
for pair in $(wanted); do
  file=${pair#*:}
  [ -e "$file" ] || [ -e "/usr$file" ] || [ -e "${file#/usr}" ] || missing+=("${pair%%:*}")
done
if [ ${#missing[@]} -gt 0 ]; then
  if ! command -v apt-get >/dev/null; then
    say "these Debian packages are missing and there is no apt-get here: ${missing[*]}"
  elif [ "$(id -u)" = 0 ] || sudo -n true 2>/dev/null; then
    sudo=; [ "$(id -u)" = 0 ] || sudo="sudo -n"
    say "installing ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    $sudo apt-get update -qq >/dev/null || say "apt-get update failed; trying with the lists there are"
    # -o: a machine without an init system must not fail on a service that cannot start
    $sudo apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null \
      || say "could not install all of: ${missing[*]}"
  else
    say "missing, and not root: ${missing[*]} (as root: apt-get install ${missing[*]})"
  fi
fi

# Without these nothing is built: it ends here, with what to do.
give_up() { say "$1"; say "then run this again: scripts/setup.sh $what"; exit 1; }
command -v cc >/dev/null || give_up "there is no C compiler, by which Rust links programs; as root: apt-get install gcc libc6-dev"
command -v make >/dev/null || say "make is missing: its commands are lines of the Makefile, which can be called by hand"
[ -e /usr/include/openssl/ssl.h ] || [ "$what" = static ] || say "OpenSSL's headers are missing (libssl-dev): what is built has no TLS, and its tests cannot be"
command -v git >/dev/null || say "git is missing: records cannot say of which commit they are"

# cargo, where it is missing or older than the workspace's rust-version.
need=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
have=$(cargo --version 2>/dev/null | sed -n 's/^cargo \([0-9.]*\).*/\1/p' || true)
older() { [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1)" != "$2" ]; }
if [ -z "$have" ] || older "$have" "$need"; then
  where=${CARGO_HOME:-${HOME:-/root}/.cargo}
  say "cargo ${have:-is missing}${have:+ is older than $need}; installing Rust by rustup into $where"
  if command -v rustup >/dev/null; then
    rustup toolchain install stable --profile minimal && rustup default stable
  else
    command -v curl >/dev/null \
      || give_up "curl is missing, by which Rust comes; as root: apt-get install curl ca-certificates; or install Rust $need or newer (https://rustup.rs)"
    installer=$(mktemp -d)/rustup-init
    trap 'rm -rf "${installer%/*}"' EXIT
    # The script chooses a program for this machine; where its server is not reached, the program itself (rustup's book has both).
    get() { curl --proto '=https' --tlsv1.2 -sSf -L "$1" -o "$installer"; }
    get https://sh.rustup.rs || get "https://static.rust-lang.org/rustup/dist/$(uname -m)-unknown-linux-gnu/rustup-init" \
      || give_up "neither sh.rustup.rs nor static.rust-lang.org is reached; install Rust $need or newer in another way"
    # Without the documentation, which is most of it; rust-toolchain.toml has what the tests take beside.
    chmod +x "$installer"
    "$installer" -y -q --profile minimal --default-toolchain stable --no-modify-path \
      || give_up "rustup did not install Rust; its words are above"
  fi
  have=$(cargo --version 2>/dev/null | sed -n 's/^cargo \([0-9.]*\).*/\1/p' || true)
  [ -n "$have" ] && ! older "$have" "$need" || give_up "cargo ${have:-is missing still}, and $need is needed"
  say "cargo $have is in $where/bin; in this shell: . $where/env"
fi

if [ "$what" = deb ] && ! command -v cargo-deb >/dev/null; then
  say "installing cargo-deb by cargo"
  cargo install --locked cargo-deb || give_up "cargo-deb is not to be had from crates.io"
fi
if [ "$what" = static ]; then
  static=$(uname -m)-unknown-linux-musl
  [ -d "$(rustc --print sysroot)/lib/rustlib/$static" ] || rustup target add "$static" \
    || give_up "rustup cannot add $static, for which a static program is built"
fi

# In an environment of their own: DuckDB, pyarrow, pandas and Ray, by which selections and the package for Python are checked, pytest, by
# which that is done, and maturin, which packs it; for the bench those that stand beside drives, or ask many of them.
oracles=target/oracles
maturin="maturin==1.16.0"
python() { [ -x $oracles/bin/python ] || python3 -m venv $oracles; $oracles/bin/python -m pip install -q --disable-pip-version-check "$@"; }
if [ "$what" = test ] && ! $oracles/bin/python -c 'import duckdb, fsspec, maturin, numpy, pandas, pyarrow, pytest, ray' 2>/dev/null; then
  say "installing DuckDB, pyarrow, pandas, fsspec, Ray, pytest and maturin into $oracles"
  python duckdb==2.0.1 pyarrow==26.0.1 pandas==3.1.1 fsspec==2026.9.0 ray==2.60.0 pytest==9.2.0 "$maturin" \
    || say "could not install them; what needs them is left out"
fi
# Beside the others, since the bench has another version.
if [ "$what" = test ] && [ ! -d $oracles/datafusion ]; then
  python --no-deps --target $oracles/datafusion datafusion==53.0.0 || say "could not install DataFusion for Python; what needs it is left out"
fi
if [ "$what" = bench ] && ! $oracles/bin/python -c 'import datafusion, duckdb, numpy' 2>/dev/null; then
  say "installing DuckDB, DataFusion and NumPy into $oracles"
  python duckdb==2.0.1 datafusion==55.0.0 numpy==2.4.6 || say "could not install them; what stands beside them is left out"
fi
if [ "$what" = bench ] && ! $oracles/bin/python -c 'import maturin, pandas, pyarrow, ray.data' 2>/dev/null; then
  say "installing Ray, pandas, pyarrow and maturin into $oracles"
  python ray==2.60.0 pandas==3.1.1 pyarrow==26.0.1 fsspec==2026.9.0 "$maturin" || say "could not install them; what Ray asks is left out"
fi
if [ "$what" = wheel ] && ! $oracles/bin/python -c 'import maturin' 2>/dev/null; then
  say "installing maturin into $oracles"
  python "$maturin" || give_up "maturin is not to be had from PyPI"
fi

# For the example programs (docs/PROGRAMS.md).
if [[ "$what" =~ ^(test|bench)$ ]] && command -v rustup >/dev/null && ! grep -qx wasm32v1-none < <(rustup target list --installed); then
  rustup target add wasm32v1-none >/dev/null 2>&1 || say "rustup cannot add wasm32v1-none; what runs the example programs is left out"
fi

# Another processor, and the static program's C library, for which `make test` checks the workspace where it can.
other=aarch64-unknown-linux-musl
if [ "$what" = test ] && command -v rustup >/dev/null && ! grep -qx "$other" < <(rustup target list --installed); then
  rustup target add "$other" >/dev/null 2>&1 || say "rustup cannot add $other; the check for it is left out"
fi
