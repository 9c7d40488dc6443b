#!/bin/sh
# Debian's sid, where its packages are asked for and fetched beside this machine's own: nothing is installed, and the
# machine's own package lists stay as they are. Other scripts read this one in (`. sid.sh`), and then there are:
#   sid_begin FOLDER           asks what there is; the folder is for nothing else, and may be removed at the end
#   sid_cache WORD...          apt-cache
#   sid_unpack PACKAGE...      downloads, and unpacks all into FOLDER/tree
# Needs: apt with Debian's key (/usr/share/keyrings/debian-archive-keyring.gpg), dpkg-deb, a network.

sid_begin() {
    rm -rf "$1"
    mkdir -p "$1/lists/partial" "$1/cache/archives/partial" "$1/debs" "$1/tree"
    sid=$(cd "$1" && pwd)
    echo 'deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian sid main' > "$sid/sources"
    sid_apt get -o APT::Update::Error-Mode=any update >&2
}

# Of the lists only those of packages; as whoever runs this.
sid_apt() {
    tool=$1
    shift
    timeout 300 "apt-$tool" -q -o Dir::Etc::SourceList="$sid/sources" -o Dir::Etc::SourceParts=/nonexistent \
        -o Dir::State::Lists="$sid/lists" -o Dir::Cache="$sid/cache" -o APT::Sandbox::User=root -o Acquire::Languages=none \
        -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false "$@"
}

sid_cache() {
    sid_apt cache "$@"
}

sid_unpack() {
    (cd "$sid/debs" && sid_apt get download "$@" >&2)
    for package in "$sid"/debs/*.deb; do
        dpkg-deb -x "$package" "$sid/tree"
        rm "$package"
    done
}
