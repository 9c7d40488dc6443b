#!/usr/bin/env bash
# An image named nearside of the static program (make static): container.sh    CONTAINER: by podman, buildah or docker, the first that is here
set -euo pipefail
cd "$(dirname "$0")/.."
tool=${CONTAINER:-}
for name in podman buildah docker; do
  [ -n "$tool" ] || ! command -v "$name" >/dev/null || tool=$name
done
[ -n "$tool" ] || { echo "container.sh: neither podman nor buildah nor docker is here; as root: apt-get install buildah" >&2; exit 1; }
context=target/container
mkdir -p "$context"
strip -o "$context/nearside" "target/$(uname -m)-unknown-linux-musl/release/nearside"
"$tool" build -f packages/Containerfile -t nearside "$context"
