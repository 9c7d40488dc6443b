#!/usr/bin/env bash
# Brings a fresh Debian or Ubuntu machine to where WHAT (build, demo, test, bench, studies, fuzz, sanitize) can run, and says what it does.
# Installs only what is missing. Without root and without sudo it installs no package, says which are missing, and goes on:
# what needs them is left out later, by name.
set -euo pipefail
cd "$(dirname "$0")/.."
what=${1:?usage: setup.sh build|demo|test|bench|studies|fuzz|sanitize}

say() { printf '[setup] %s\n' "$*"; }

# A package is missing when the file it brings is.
wanted() {
  echo "gcc:/usr/bin/cc libc6-dev:/usr/include/stdio.h"
  command -v cargo >/dev/null || echo "curl:/usr/bin/curl ca-certificates:/etc/ssl/certs/ca-certificates.crt"
  case $what in demo|test|bench|studies|sanitize) echo "e2fsprogs:/sbin/mke2fs f2fs-tools:/sbin/mkfs.f2fs mount:/bin/mount" ;; esac
  case $what in test|bench) echo "ripgrep:/usr/bin/rg" ;; esac
  case $what in test)
    echo "fio:/usr/bin/fio blktrace:/usr/bin/blkparse acl:/usr/bin/setfacl attr:/usr/bin/setfattr fdisk:/sbin/sfdisk"
    echo "pkg-config:/usr/bin/pkg-config groff-base:/usr/bin/groff sleuthkit:/usr/bin/fls systemd:/usr/bin/systemd-analyze"
    echo "fuse3:/usr/bin/fusermount3 chromium-headless-shell:/usr/bin/chromium-headless-shell"
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

# cargo, where it is missing or older than the workspace's rust-version.
need=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
have=$(cargo --version 2>/dev/null | sed -n 's/^cargo \([0-9.]*\).*/\1/p' || true)
older() { [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1)" != "$2" ]; }
if [ -z "$have" ] || older "$have" "$need"; then
  say "cargo ${have:-is missing}${have:+ is older than $need}; installing Rust by rustup into ~/.cargo"
  if command -v rustup >/dev/null; then
    rustup toolchain install stable --profile default && rustup default stable
  else
    curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y --profile default --default-toolchain stable --no-modify-path
  fi
fi

# DuckDB and pyarrow, by which selections are checked, in an environment of their own.
oracles=target/oracles
if [ "$what" = test ] && ! $oracles/bin/python -c 'import duckdb, pyarrow' 2>/dev/null; then
  say "installing DuckDB and pyarrow into $oracles"
  { python3 -m venv $oracles && $oracles/bin/pip install -q --disable-pip-version-check duckdb==2.0.1 pyarrow==26.0.1; } \
    || say "could not install them; what needs them is left out"
fi

# Another processor, for which `make test` checks the workspace where it can.
other=aarch64-unknown-linux-gnu
if [ "$what" = test ] && command -v rustup >/dev/null && ! rustup target list --installed | grep -qx "$other"; then
  rustup target add "$other" >/dev/null 2>&1 || say "rustup cannot add $other; the check for it is left out"
fi
