# Becomes the systemd of a machine within a lab host, for TestSystemd: the first process of namespaces of its own but for the
# network, in a control group that is the root of all it sees. Nothing that it writes is seen outside.
set -eu
mount -n --make-rprivate /
mount -n -t proc proc /proc
umount -n /sys/fs/cgroup
mount -n -t cgroup2 cgroup2 /sys/fs/cgroup
mount -n --bind /proc/sys /proc/sys # limits of the whole kernel, which systemd raises
mount -n -o remount,bind,ro /proc/sys
host=$(uname -n)
mount -n -t tmpfs -o mode=755 lab /run

mkdir /run/dev
for file in null zero full random urandom tty; do
	: >/run/dev/$file
	mount -n --bind /dev/$file /run/dev/$file
done
: >/run/dev/console
ln -s /proc/self/fd /run/dev/fd
mkdir -m 1777 /run/dev/shm
mount -n --rbind /run/dev /dev
mount -n -t tmpfs -o mode=1777 lab /dev/shm

mkdir -p /run/etc/systemd/system
cp -a /etc/ld.so.cache /etc/alternatives /run/etc
cat /etc/hosts >/run/etc/hosts
mount -n --bind /run/etc /etc
echo "$host" >/etc/hostname
echo 0123456789abcdef0123456789abcdef >/etc/machine-id
cat >/etc/passwd <<END
root:x:0:0:root:/root:/bin/sh
alice:x:1000:1000::/home/alice:/bin/sh
bob:x:1001:1000::/home/bob:/bin/sh
END
cat >/etc/group <<END
root:x:0:
alice:x:1000:
END
mkdir -m 700 /home/alice /home/bob
chown alice:alice /home/alice
chown bob:alice /home/bob
mount -n -t tmpfs -o mode=755 lab /usr/local/bin

# Only what the unit asks for: the targets of a real machine would mount, load and start much.
cd /etc/systemd/system
for target in sysinit basic shutdown network-online multi-user; do
	echo '[Unit]' >$target.target
done
cp /lib/systemd/system/systemd-journald.service /lib/systemd/system/systemd-journald.socket .
echo Wants=systemd-journald.service >>basic.target
printf '[Journal]\nStorage=volatile\nReadKMsg=no\nAudit=no\n' >/etc/systemd/journald.conf

cd /
exec env -i container=lab PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin SYSTEMD_UNIT_PATH=/etc/systemd/system \
	SYSTEMD_GENERATOR_PATH=/none /lib/systemd/systemd --system --unit=basic.target --log-target=console --show-status=no
