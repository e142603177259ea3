#!/bin/sh
# The first minute of a machine's life: from new namespaces to systemd as process 1. Run by
# machine.py through unshare(1); it touches nothing outside of its mount namespace.
#
#   boot.sh NAME FOLDER "CONTROLLERS" "FROM:TO ..."
#
# FOLDER is empty and the machine's disk goes there, into memory; CONTROLLERS are those of cgroup v1
# that it gets, none where the host has v2 alone; FROM is seen inside at TO.
set -eu
name=$1 folder=$2 controllers=$3 seen=$4

hostname "$name"
ip link set lo up 2>/dev/null || true

# The host's files, and above them what the machine writes.
mount -t tmpfs -o mode=755,size=256m machine "$folder"
mkdir "$folder/new" "$folder/work" "$folder/root"
mount -t overlay -o "lowerdir=/,upperdir=$folder/new,workdir=$folder/work" overlay "$folder/root"
cd "$folder/root"

mount -t proc -o nosuid,nodev,noexec proc proc
mount --bind proc/sys proc/sys
mount -o remount,bind,ro proc/sys
mount -t sysfs -o ro,nosuid,nodev,noexec sysfs sys
if [ -n "$controllers" ]; then
    mount -t tmpfs -o mode=755 tmpfs sys/fs/cgroup
    mkdir sys/fs/cgroup/unified
    mount -t cgroup2 cgroup2 sys/fs/cgroup/unified
    for controller in $controllers; do
        what=$controller
        [ "$controller" != systemd ] || what=none,name=systemd
        mkdir "sys/fs/cgroup/$controller"
        mount -t cgroup -o "$what" cgroup "sys/fs/cgroup/$controller"
    done
else
    mount -t cgroup2 cgroup2 sys/fs/cgroup
fi

mount -t tmpfs -o mode=755 tmpfs dev
for node in null zero full random urandom tty; do
    touch "dev/$node"
    mount --bind "/dev/$node" "dev/$node"
done
touch dev/console
mount --bind /dev/null dev/console
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=666 devpts dev/pts
mount -t tmpfs -o mode=1777 tmpfs dev/shm
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
for number in 0:stdin 1:stdout 2:stderr; do ln -s "/proc/self/fd/${number%%:*}" "dev/${number#*:}"; done
mount -t tmpfs -o mode=755 tmpfs run
mount -t tmpfs -o mode=1777 tmpfs tmp

for pair in $seen; do
    mkdir -p "./${pair#*:}"
    mount --bind "${pair%%:*}" "./${pair#*:}"
done

# What belongs to hardware, to the kernel, or to a machine that stays.
mkdir -p etc/systemd/system
for unit in systemd-udevd.service systemd-sysctl.service systemd-modules-load.service \
    systemd-journald-audit.socket systemd-timesyncd.service systemd-binfmt.service \
    systemd-random-seed.service systemd-remount-fs.service systemd-journal-flush.service \
    systemd-update-utmp.service getty.target dev-hugepages.mount dev-mqueue.mount \
    sys-kernel-debug.mount sys-kernel-tracing.mount sys-fs-fuse-connections.mount; do
    ln -sf /dev/null "etc/systemd/system/$unit"
done
: >etc/fstab
: >etc/machine-id
rm -rf etc/systemd/system/*.wants var/log/journal

mkdir -p .host
pivot_root . .host
umount -l /.host
# Process 1 of a container leaves this to whoever made it; else units do not see their credentials.
mount --make-rshared /
exec env -i container=jobctl-test PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 \
    setpriv --bounding-set=-sys_module,-sys_time,-sys_boot,-sys_rawio,-syslog,-audit_control,-audit_read,-mac_admin \
    /lib/systemd/systemd --system --unit=basic.target --log-target=journal --show-status=no
