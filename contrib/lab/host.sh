# The first process of a host until it becomes the host's sshd: name, address/bits, ro or rw, sshd, and
# the shared directories.
set -eu
name=$1 address=$2 root=$3 sshd=$4
shift 4
read -r _ # the network card is there now

mount -n -t proc proc /proc
echo "$name" >/proc/sys/kernel/hostname
# sysfs shows the network namespace of the process that mounts it.
mount -n -t sysfs sysfs /sys
[ -z "$CGROUPS" ] || mount -n -t cgroup2 cgroup2 /sys/fs/cgroup || :
ip -batch - <<END
link set lo up
address add $address dev eth0
link set eth0 up
END

own=/run/lab/host/$name
hide() { [ ! -d "$2" ] || mount -n -t tmpfs -o "mode=$1" lab "$2"; }
hide 700 /root
hide 755 /home
hide 1777 /tmp
hide 1777 /var/tmp
hide 1777 /dev/shm
mount -n --bind /run/lab/hosts /etc/hosts
for file in hostname shadow; do
	[ ! -e "/etc/$file" ] || mount -n --bind "$own/$file" "/etc/$file"
done
cp -r "$own/ssh" /root/.ssh
i=0
for dir in "$@"; do
	mkdir -p "$dir"
	mount -n --rbind "/run/lab/share/$i" "$dir"
	i=$((i + 1))
done

# sysfs takes no directories, so another one, with all of its classes, covers /sys/class.
if [ -n "$CLASS" ] && [ -d "$CLASS/$name" ]; then
	mkdir "$own/class"
	mount -n -t tmpfs -o mode=755 lab "$own/class"
	for dir in /sys/class/* "$CLASS/$name"/*; do
		mkdir -p "$own/class/${dir##*/}"
		mount -n --bind "$dir" "$own/class/${dir##*/}"
	done
	mount -n --move "$own/class" /sys/class
fi

# A /run of its own, with nothing of the lab in it but this host's part.
mount -n -t tmpfs -o mode=755 lab "$own/run"
mkdir "$own/run/lab" "$own/run/sshd"
mount -n --bind "$own" "$own/run/lab"
mount -n --move "$own/run" /run
[ "$root" = rw ] || mount -n -o remount,bind,ro /

cd /
exec "$sshd" -D -e -f /run/lab/sshd_config
