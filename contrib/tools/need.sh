#!/bin/sh
# Checks that this machine has what a target of make needs, and says what is missing and how to get it, a line each:
#
#	contrib/tools/need.sh go venv root lab vm PROGRAM PROGRAM:PACKAGE…
set -u
cd "$(dirname "$0")/../.." || exit
status=0
lacks() {
	echo "error: $1" >&2
	status=1
}

go_is_there() {
	wanted=$(sed -n 's/^go //p' go.mod)
	command -v go >/dev/null || { lacks "Go is missing: install $wanted or later from https://go.dev/dl"; return; }
	have=$(GOTOOLCHAIN=local go env GOVERSION | sed 's/^go//; s/[- ].*//')
	[ "$(printf '%s\n' "$wanted" "$have" | sort -V | head -1)" != "$wanted" ] || return 0
	case $have,$(go env GOTOOLCHAIN) in
	1.1* | 1.20* | *,local*) lacks "Go is $have here, and go.mod needs $wanted: unset GOTOOLCHAIN if it is local, or install it from https://go.dev/dl" ;;
	esac
}

for what in "$@"; do
	case $what in
	go) go_is_there ;;
	venv) python3 -c 'import ensurepip, venv' 2>/dev/null || lacks "python3 cannot make a venv: apt-get install python3-venv" ;;
	root) [ "$(id -u)" = 0 ] || lacks "this needs root" ;;
	lab)
		contrib/tools/need.sh root && contrib/tools/need.sh ip:iproute2 tc:iproute2 sshd:openssh-server && { unshare --mount --net --pid --fork true 2>/dev/null ||
			lacks "hosts of a lab need namespaces: in a container, --privileged"; } || status=1
		;;
	vm)
		contrib/tools/need.sh lab qemu-system-x86_64:qemu-system-x86 busybox:busybox-static depmod:kmod mke2fs:e2fsprogs || status=1
		[ -e /dev/net/tun ] || lacks "virtual machines need /dev/net/tun"
		;;
	*) command -v "${what%%:*}" >/dev/null || lacks "${what%%:*} is missing: apt-get install ${what#*:}" ;;
	esac
done
exit $status
