# A node of Kubernetes on this machine: start.sh KUBELET KUBECONFIG IMAGE DIRECTORY...
# containerd and the kubelet, in namespaces of their own for processes and mounts. They find the files of the directories in
# /run, and write there. Both end with this process, and with them all pods, even by kill -9.
set -eu
kubelet=$1 kubeconfig=$2 image=$3
shift 3
mount -n -t tmpfs -o mode=755 node /run # containers cannot write on the file system that their image has as a layer
for dir in "$@"; do cp -a "$dir/." /run; done
# The tests write pods for larger machines than this one. These are what the kubelet counts.
mkdir /run/none
for i in $(seq 0 63); do mkdir -p "/run/cpus/cpu$i"; done
printf 'MemTotal: 536870912 kB\nSwapTotal: 0 kB\n' >/run/meminfo
mount -n --bind /run/cpus /sys/devices/system/cpu
mount -n --bind /run/none /sys/devices/system/node
mount -n --bind /run/meminfo /proc/meminfo
# The kubelet sets these, which are the whole machine's.
for file in vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops kernel/keys/root_maxkeys kernel/keys/root_maxbytes; do
	mkdir -p "/run/sys/${file%/*}"
	cp "/proc/sys/$file" "/run/sys/$file"
	mount -n --bind "/run/sys/$file" "/proc/sys/$file"
done
# A control group for the node and one for its pods, in each hierarchy. Those of nodes that have ended are empty.
group=$(mktemp -u gorun-pods-XXXXXX)
roots=/sys/fs/cgroup
[ -e $roots/cgroup.controllers ] || roots=$(dirname $roots/*/cgroup.procs)
for root in $roots; do
	for old in "$root"/gorun-pods-*; do
		! rmdir "$old/node" 2>/dev/null || find "$old" -depth -type d -exec rmdir {} + || : # some may end right now
	done
	mkdir "$root/$group" "$root/$group/node"
	for file in cpuset.cpus cpuset.mems; do
		[ ! -e "$root/$file" ] || tee "$root/$group/$file" "$root/$group/node/$file" <"$root/$file"
	done
	echo $$ >"$root/$group/node/cgroup.procs"
done
echo "cgroupRoot: /$group" >>/run/kubelet.yaml
ip link delete pods 2>/dev/null || :
ip -batch - <<END
link add pods type bridge forward_delay 0
address add 10.78.0.1/16 dev pods
link set pods up
END
containerd --config /run/containerd.toml &
for _ in $(seq 300); do
	! ctr version >/dev/null 2>&1 || break
	sleep 0.1
done
ctr --namespace k8s.io images pull --hosts-dir /run/certs.d "$image"
mount -n --bind / /run/containerd/root/io.containerd.snapshotter.v1.overlayfs/snapshots/1/fs # its first layer, which is empty
exec "$kubelet" --config=/run/kubelet.yaml --kubeconfig="$kubeconfig" --hostname-override=node1 --node-ip=10.78.0.1 --root-dir=/run/pods --cert-dir=/run
