# The first process of the node: a bridge for its pods, and directories for images and for pods.
set -eu
mount -n --make-rprivate /
mount -n -t proc proc /proc
ip -batch - <<END
link set lo up
link add pods type bridge forward_delay 0
address add $1 dev pods
link set pods up
END
mkdir -p /run
mount -n -t tmpfs -o mode=755 kubelet /run
mkdir -p /run/kubelet/images /run/kubelet/pods
shift
i=0
for dir in "$@"; do
	cp -a "$dir" "/run/kubelet/images/$i"
	i=$((i + 1))
done
echo ready
# The kubelet holds the other end of standard input. When it has ended, so does this process, and with it all pods.
read -r _ || :
