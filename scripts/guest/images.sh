#!/bin/sh
# Makes images in a guest that a test leads, by its kernel's device mapper, md and ext4, as lvm2 and mdadm have them do it:
#   /job/images.sh make, then change, mount, end
# The disks that QEMU gives the guest: vda and vdb are physical volumes of vg0; vdc and vdd a mirror of metadata 1.2, and vde its
# spare; vdf and vdg one of 1.0, in which vg1 is; vdh and vdi one of 1.1; vdj half of one of 0.90; on vdk lies ext4. What is in
# a volume is said behind a line `== NAME`: the SHA-256 of each file, and what ls says of all.
set -eu
config='backup { backup=0 archive=0 } global { event_activation=0 use_lvmpolld=0 }
  activation { udev_sync=0 udev_rules=0 monitoring=0 }
  devices { use_devicesfile=0 filter=["a|^/dev/vd[ab]$|","a|^/dev/md1$|","r|.*|"] }'
export LVM_SUPPRESS_FD_WARNINGS=1

# Only what is in a volume is for standard output.
lvm() {
    command=$1
    shift
    /usr/bin/lvm "$command" -q --config "$config" "$@" >&2
}

format() {
    /usr/bin/mke2fs -q -t ext4 -E lazy_itable_init=0,lazy_journal_init=0 -L "$2" "$1"
    mounted "$1" "$2"
}

# Nothing writes to it but who is told to.
mounted() {
    mkdir -p "/mnt/$2"
    mount -t ext4 -o noatime "$1" "/mnt/$2"
}

grow() {
    lvm lvextend "$@"
    resize2fs "/dev/$1" >&2
}

# Files in a folder of this name on a volume, one of them of so many mebibytes.
write() {
    at=/mnt/$1/$2
    mkdir -p "$at/logs/older"
    seq 20000 | sed "s/^/$2: line /" > "$at/logs/a.log"
    for n in $(seq 24); do
        seq "$n" | sed "s/^/$2: /" > "$at/logs/older/$n"
    done
    ln -s logs/a.log "$at/link"
    : > "$at/empty"
    chmod 640 "$at/empty"
    chown 1000:100 "$at/logs/older"
    head -c $(($3 << 20)) /dev/urandom > "$at/large"
}

say() {
    sync
    echo "== $2"
    (cd "/mnt/$1" && find . -type f | sort | xargs sha256sum && ls -lnR --full-time) |
        sed 's|  \./|  /|; s|^\.:$|/:|; s|^\./|/|'
}

# Until an attribute of an array begins with this word.
awaited() {
    for _ in $(seq 600); do
        read -r word _ < "/sys/block/$1/md/$2"
        [ "$word" != "$3" ] || return 0
        sleep 0.1
    done
    echo "$1: $2 is $word, not $3" >&2
    return 1
}

mirror() {
    mdadm --create "$@" --run --level=1 --raid-devices=2 >&2
}

# An array loses a disk.
fail() {
    mdadm "/dev/$1" --fail "/dev/$2" >&2
    awaited "$1" "dev-$2/slot" none
    mdadm "/dev/$1" --remove "/dev/$2" >&2
}

# All arrays of the machine, in KiB/s.
speed() {
    echo "$1" > /proc/sys/dev/raid/speed_limit_min
    echo "$2" > /proc/sys/dev/raid/speed_limit_max
}

make_volumes() {
    lvm pvcreate --metadatasize 64k --dataalignment 64k /dev/vda /dev/vdb
    lvm vgcreate -s 1m vg0 /dev/vda /dev/vdb
    lvm lvcreate -y -l 12 -n root vg0 /dev/vda
    lvm lvcreate -y -l 6 -n home vg0 /dev/vda
    for name in root home; do
        format "/dev/vg0/$name" $name
        write $name first 3
        say $name $name-first
    done
}

make_mirrors() {
    mirror /dev/md0 --metadata=1.2 --bitmap=none --spare-devices=1 /dev/vdc /dev/vdd /dev/vde
    awaited md0 sync_action idle
    format /dev/md0 mirror
    write mirror first 4
    say mirror mirror-first

    # It is being written, as md has it, until it is stopped.
    mirror /dev/md1 --metadata=1.0 --bitmap=internal --assume-clean /dev/vdf /dev/vdg
    echo 0 > /sys/block/md1/md/safe_mode_delay
    lvm pvcreate /dev/md1
    lvm vgcreate -s 1m vg1 /dev/md1
    lvm lvcreate -y -l 10 -n data vg1
    format /dev/vg1/data data
    write data first 2
    say data data-first
    awaited md1 array_state active

    # Made alike up to its fourth mebibyte.
    speed 1 1
    mirror /dev/md2 --metadata=1.1 --bitmap=none /dev/vdh /dev/vdi
    echo frozen > /sys/block/md2/md/sync_action
    echo 8192 > /sys/block/md2/md/sync_max
    speed 1000 200000
    echo resync > /sys/block/md2/md/sync_action
    format /dev/md2 begun
    write begun first 3
    awaited md2 sync_completed 8192
    say begun begun
    umount /mnt/begun
    mdadm --stop /dev/md2 >&2

    mirror /dev/md2 --metadata=0.90 --bitmap=none /dev/vdj missing
    format /dev/md2 early
    write early first 2
    say early early
    umount /mnt/early
    mdadm --stop /dev/md2 >&2
}

change_volumes() {
    # Grown while it is mounted, behind another, and filled until there are files in all of it.
    grow vg0/root -l +9 /dev/vda
    write root second 11
    lvm lvcreate -y -l 2 -n half vg0 /dev/vda
    lvm lvextend -l +1 vg0/half /dev/vdb
    lvm lvcreate -y -l 4 -i 2 -n wide vg0
    lvm lvcreate -y -s -l 4 -n before vg0/root
    write root third 1
    rm -r /mnt/root/first/logs
    say root root
    # What is mounted is merged when it is activated next.
    lvm lvcreate -y -s -l 2 -n back vg0/home
    lvm lvconvert --merge vg0/back
    umount /mnt/root /mnt/home
    echo "== lvs"
    /usr/bin/lvm lvs --config "$config" --noheadings --units b --nosuffix -o vg_name,lv_name,lv_size vg0 | sort
    # Until the group's metadata go on at the beginning of their area.
    long=$(printf '%0800d' 0)
    lvm vgchange --addtag "a$long" --addtag "b$long" --addtag "c$long" --addtag "d$long" --addtag "e$long" --addtag "f$long" vg0
    number() { od -A n -t u8 -j "$1" -N 8 /dev/vda; }
    n=0
    until [ $(($(number 4136) + $(number 4144))) -gt $(($(number 4128))) ]; do
        n=$((n + 1))
        [ $n -lt 40 ]
        lvm vgchange --addtag "tag$n" vg0
    done
    lvm vgchange -an vg0
}

change_mirrors() {
    # The spare takes the place of the one that fails, and has its first four mebibytes when the array stops.
    sync
    awaited md0 array_state clean
    echo 8192 > /sys/block/md0/md/sync_max
    fail md0 vdd
    awaited md0 sync_completed 8192
    write mirror second 5
    rm -r /mnt/mirror/first/logs
    say mirror mirror
    umount /mnt/mirror
    mdadm --stop /dev/md0 >&2

    fail md1 vdg
    grow vg1/data -l +3
    write data second 4
    say data data
    umount /mnt/data
    lvm vgchange -an vg1
    mdadm --stop /dev/md1 >&2
}

case $1 in
make)
    mkdir -p /run/lvm /run/lock/lvm /run/mdadm
    make_volumes
    make_mirrors
    format /dev/vdk disk
    write disk first 9
    say disk disk-first
    umount /mnt/disk
    ;;
change)
    change_volumes
    change_mirrors
    mounted /dev/vdk disk
    write disk second 6
    rm -r /mnt/disk/first/logs
    say disk disk-second
    umount /mnt/disk
    ;;
mount)
    mounted /dev/vdk disk
    write disk third 4
    say disk disk-third
    ;;
end)
    rm -r /mnt/disk/second/large
    fstrim /mnt/disk
    write disk fourth 3
    say disk disk
    umount /mnt/disk
    ;;
esac
