# What a machine does with the package, one stage for each time that it starts (service.sh). /stage says which comes next.
set -eux
nqn=nqn.2026-11.invalid.example:nearside
say() { echo "stages: $*"; }
# However it ends, the machine does.
trap 'code=$?; [ $code = 0 ] || { journalctl -u nearside --no-pager | tail -50; poweroff; }' EXIT
# A command that has to fail: what begins with `!` fails no script.
never() { if "$@"; then echo "stages: was not to succeed: $*"; exit 1; fi; }
# Until a command succeeds.
awaited() { for _ in $(seq 300); do "$@" && return 0; sleep 0.2; done; return 1; }
connect() {
  modprobe nvme-tcp
  nvme connect -t tcp -a 127.0.0.1 -s 4420 -n $nqn -l 120
  awaited test -b /dev/nvme0n1
}
version() { nvme list -o json | grep -o '"Firmware":"[^"]*"'; }

case $(cat /stage) in
first)
  say "installed, and not started"
  apt-get install -qq -y /packages/older.deb
  never systemctl is-enabled --quiet nearside
  never systemctl is-active --quiet nearside
  say "a disk of its own, served from now on"
  systemctl start nearside
  truncate -s 256M /var/lib/nearside/disk.img
  chown --reference=/var/lib/nearside/. /var/lib/nearside/disk.img
  sed -i 's|^store = .*|store = "file:/var/lib/nearside/disk.img"|' /etc/nearside/serve.toml
  systemctl enable nearside
  systemctl restart nearside
  systemctl is-active nearside
  nearside status --control /run/nearside/control.sock
  mkdir -p /etc/nvme
  nvme gen-hostnqn > /etc/nvme/hostnqn
  cut -d: -f3 < /etc/nvme/hostnqn > /etc/nvme/hostid
  connect
  mkfs.ext4 -q /dev/nvme0n1
  mount /dev/nvme0n1 /mnt
  cp -r /etc /mnt/etc
  (cd /mnt && find etc -type f -exec sha256sum {} + > sums)
  sync
  # What the drive sees of it, asked beside the mount.
  nearside grep -d nvme+tcp://127.0.0.1/$nqn/1 --as 0:0 -c root /etc/passwd
  say "a reload: a second namespace comes while the first is mounted"
  printf '\n[[subsystem.namespace]]\nnsid = 2\nstore = "dram:16MiB"\n' >> /etc/nearside/serve.toml
  systemctl reload nearside
  awaited test -b /dev/nvme0n2
  echo second > /stage
  say "the machine restarts, with the disk mounted"
  sync
  reboot
  ;;
second)
  say "served after a restart, without a word"
  systemctl is-active nearside
  say "a host with a key, which root keeps and the service has as a credential"
  mkdir /tmp/tree
  echo a word > /tmp/tree/word
  mke2fs -q -t ext4 -d /tmp/tree /var/lib/nearside/keyed.img 16M
  chown --reference=/var/lib/nearside/disk.img /var/lib/nearside/keyed.img
  nearside key generate --out /etc/nearside/web.key
  mkdir -p /etc/systemd/system/nearside.service.d
  printf '[Service]\nLoadCredential=web.key:/etc/nearside/web.key\n' > /etc/systemd/system/nearside.service.d/keys.conf
  cat >> /etc/nearside/serve.toml <<KEYED

[[subsystem]]
nqn = "$nqn-keyed"
[[subsystem.host]]
nqn = "$nqn-web"
key-file = "/run/credentials/nearside.service/web.key"
[[subsystem.namespace]]
nsid = 1
store = "file:/var/lib/nearside/keyed.img"
KEYED
  systemctl daemon-reload
  systemctl restart nearside
  cat_word() { nearside cat -d "nvme+tcp://127.0.0.1/$nqn-keyed/1" --hostnqn "$nqn-web" --as 0:0 "$@" /word; }
  test "$(cat_word --dhchap-key-file /etc/nearside/web.key)" = "a word"
  never cat_word
  connect
  mount /dev/nvme0n1 /mnt
  (cd /mnt && sha256sum --quiet -c sums)
  say "a newer package, while the disk is written and verified"
  before=$(systemctl show -p MainPID --value nearside)
  fio --name=beside --filename=/mnt/fio --size=32M --rw=randrw --bs=4k --verify=crc32c --verify_fatal=1 --direct=1 --ioengine=libaio \
    --iodepth=4 --time_based --runtime=60 --output=/fio &
  sleep 10
  apt-get install -qq -y /packages/newer.deb
  test "$(systemctl show -p MainPID --value nearside)" != "$before"
  systemctl is-active nearside
  dpkg-query -W nearside | grep -q newer
  # A file that its user has changed stays.
  grep -q disk.img /etc/nearside/serve.toml
  wait $! || { cat /fio; dmesg | tail -30; false; }
  grep -E 'err= *0' /fio
  dmesg | grep -i nvme | tail -5
  never eval "dmesg | grep -E 'I/O error|EXT4-fs error'"
  (cd /mnt && sha256sum --quiet -c sums)
  umount /mnt
  fsck.ext4 -fn /dev/nvme0n1
  nvme disconnect -n $nqn
  say "started by the first host that connects"
  systemctl stop nearside
  systemctl enable --now nearside.socket
  never systemctl is-active --quiet nearside
  connect
  systemctl is-active nearside
  systemctl restart nearside
  awaited grep -q live /sys/class/nvme/nvme0/state
  fsck.ext4 -fn /dev/nvme0n1
  nvme disconnect -n $nqn
  systemctl disable --now nearside.socket
  say "a wrong file: a host that connects starts the service five times, then both units have failed"
  systemctl stop nearside
  cp -p /etc/nearside/serve.toml /right.toml
  echo wrong >> /etc/nearside/serve.toml
  systemctl enable --now nearside.socket
  # Those from before do not count.
  systemctl reset-failed nearside.service
  code=0
  nearside grep -d nvme+tcp://127.0.0.1/$nqn/1 --as 0:0 -c root /etc/passwd || code=$?
  test $code != 0
  awaited systemctl is-failed --quiet nearside.socket
  # Five starts by a host, or five within ten seconds in all.
  systemctl show -p Result --value nearside.socket | grep -Ex 'trigger-limit-hit|service-start-limit-hit'
  test "$(systemctl show -p ActiveState --value nearside.service)" = failed
  test "$(systemctl show -p ExecMainStatus --value nearside.service)" = 2
  say "the right file again"
  cp -p /right.toml /etc/nearside/serve.toml
  systemctl daemon-reload
  systemctl reset-failed nearside.service nearside.socket
  systemctl start nearside.socket
  connect
  systemctl is-active nearside
  nvme disconnect -n $nqn
  systemctl disable --now nearside.socket
  say "purged"
  rm -r /etc/systemd/system/nearside.service.d /etc/nearside/web.key
  apt-get purge -qq -y nearside
  never systemctl is-active --quiet nearside
  never systemctl cat nearside
  test ! -e /etc/nearside
  # A disk stays.
  test -s /var/lib/private/nearside/disk.img
  say "all done"
  poweroff
  ;;
esac
