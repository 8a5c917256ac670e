# The first process of a container until it becomes the container's command: the image's directory, the container's own
# one, the pod's one, ro or rw, the working directory, and the command. The file mounts in the container's directory has a
# line for each mount: from, to, ro or rw.
set -eu
read -r _ # the kubelet knows this process now
image=$1 own=$2 pod=$3 mode=$4 dir=$5
shift 5
root=$own/root
mkdir -p "$root" "$own/upper" "$own/work"
mount -n -t overlay -o "lowerdir=$image:/,upperdir=$own/upper,workdir=$own/work" overlay "$root"
mount -n -t proc proc "$root/proc"
mount -n -t sysfs -o ro sysfs "$root/sys"
mount -n -t tmpfs -o mode=755 cgroup "$root/sys/fs/cgroup"
mount -n --bind /dev "$root/dev"
[ ! -d /dev/pts ] || mount -n --bind /dev/pts "$root/dev/pts"
mount -n -t tmpfs -o mode=1777,size=64m shm "$root/dev/shm"
for file in hosts resolv.conf hostname; do
	touch "$root/etc/$file"
	mount -n --bind "$pod/$file" "$root/etc/$file"
done
while read -r from to _; do
	if [ -d "$from" ]; then
		mkdir -p "$root$to"
	else
		mkdir -p "$root${to%/*}"
		touch "$root$to"
	fi
	mount -n --bind "$from" "$root$to"
done <"$own/mounts"
while read -r _ to access; do
	[ "$access" = rw ] || mount -n -o remount,bind,ro "$root$to"
done <"$own/mounts"
[ "$mode" = rw ] || mount -n -o remount,bind,ro "$root"
exec chroot "$root" env -C "$dir" "$@" </dev/null
