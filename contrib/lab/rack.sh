# The first process of a lab: its arguments are the directories that every host sees.
set -eu
mount -n --make-rprivate /
# Directories are bound before /run is replaced, so that they may lie anywhere else.
mount -n -t tmpfs -o mode=755 lab /run
mount -n -t proc proc /proc
mkdir -p /run/lab/host /run/lab/share
i=0
for dir in "$@"; do
	mkdir "/run/lab/share/$i"
	mount -n --rbind "$dir" "/run/lab/share/$i"
	i=$((i + 1))
done
echo ready
# The lab's owner holds the other end of standard input. When it is gone, so is this process, the
# first of its pid namespace, and with it everything in the lab.
read -r _ || :
