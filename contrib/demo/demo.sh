#!/bin/bash
# Shows gorun at work: two hosts made out of this machine, four ranks, one training run over ssh.
# Where something is missing and cannot be installed, it reports that, and shows what works without it.
set -euo pipefail
cd "$(dirname "$0")/../.."

lab=build/lab
name=demo-$$
venv=build/demo-venv

# step announces the next step and about how long it takes.
step() { printf '\n\033[1m== %s\033[0m (%s)\n' "$1" "$2"; }
say() { printf '   %s\n' "$*"; }

# has checks whether a Python has all of some modules.
has() {
	local python=$1
	shift
	command -v "$python" >/dev/null && "$python" -c "import ${*// /,}" 2>/dev/null
}

# choose sets python to one that has the modules, if there is one; python3 of Debian comes first, because
# that is what apt-get installs modules for.
choose() {
	for python in /usr/bin/python3 python3 "$PWD/$venv/bin/python3"; do
		has "$python" "$1" && return
	done
	python=''
}

is_root() { [ "$(id -u)" = 0 ]; }

# fetch installs Debian packages, or says why not.
fetch() {
	if ! is_root || ! command -v apt-get >/dev/null; then
		say "not possible here: that needs root, and apt-get"
		return
	fi
	DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends "$@" >build/demo.log 2>&1 ||
		{ apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends "$@"; } >>build/demo.log 2>&1 ||
		say "not possible here; see build/demo.log"
}

need_go() {
	command -v go >/dev/null || { echo "demo: error: Go is missing; it is at https://go.dev/dl" >&2; exit 1; }
}

# find_python sets python and script: torch if it can be had as a package, numpy otherwise.
find_python() {
	choose numpy,sklearn,torch
	if [ -z "$python" ]; then
		step "Fetching torch and scikit-learn with apt-get" "a few minutes, once"
		fetch python3 python3-torch python3-sklearn
		choose numpy,sklearn,torch
	fi
	script=contrib/examples/digits_torch.py
	[ -z "$python" ] || return 0

	script=contrib/examples/digits_numpy.py
	choose numpy,sklearn
	if [ -z "$python" ]; then
		step "Fetching numpy and scikit-learn with pip into $venv" "a minute, once"
		if ! { python3 -m venv "$venv" && "$venv/bin/pip" -q install --disable-pip-version-check numpy scikit-learn; }; then
			echo "demo: error: no Python with numpy and scikit-learn, and none can be fetched" >&2
			echo "demo: hint: install python3, python3-venv, or python3-numpy and python3-sklearn" >&2
			exit 1
		fi
		choose numpy,sklearn
	fi
	say "no torch here, so the demo trains with numpy"
}

# start_lab makes two hosts, or fails.
start_lab() {
	if ! { command -v ip && command -v tc && command -v sshd && command -v ssh; } >/dev/null; then
		step "Fetching sshd and iproute2 with apt-get" "half a minute, once"
		fetch openssh-server openssh-client iproute2 util-linux mount
	fi
	is_root || return 1
	step "Starting two hosts" "a second"
	say "each has its own address, processes, home and sshd: see contrib/lab"
	# A Python in a home is not seen by the hosts unless it is shared.
	local share=() prefix
	prefix=$("$python" -c 'import sys; print(sys.base_prefix)')
	case $prefix in /root/* | /home/* | /tmp/*) share=(--share "$prefix") ;; esac
	go build -o "$lab" ./contrib/lab/cmd/lab
	"$lab" --name "$name" up "${share[@]}" 2 || return 1
	trap '"$lab" --name "$name" down' EXIT
}

# start_sshds makes two hosts without namespaces, or fails: an sshd on 127.0.0.2 and one on 127.0.0.3.
start_sshds() {
	command -v sshd >/dev/null && command -v ssh-keygen >/dev/null || return 1
	step "Starting two hosts without namespaces" "a second"
	say "this machine stands for both: each has an address, an sshd and a key of its own"
	local n port=$((20000 + $$ % 10000))
	dir=$(mktemp -d) sshds=()
	trap 'kill "${sshds[@]}"; rm -r "$dir"' EXIT
	if is_root; then mkdir -p /run/sshd; fi
	ssh-keygen -q -t ed25519 -N '' -f "$dir/login"
	for n in 1 2; do
		ssh-keygen -q -t ed25519 -N '' -f "$dir/host$n"
		printf '%s\n' "ListenAddress 127.0.0.$((n + 1)):$port" "HostKey $dir/host$n" "AuthorizedKeysFile $dir/login.pub" \
			'StrictModes no' 'UsePAM no' 'PidFile none' 'PasswordAuthentication no' >"$dir/sshd$n"
		"$(command -v sshd)" -D -e -f "$dir/sshd$n" 2>"$dir/log$n" &
		sshds+=($!)
		printf '%s\n' "Host host$n" "HostName 127.0.0.$((n + 1))" "Port $port" "IdentityFile $dir/login" 'IdentitiesOnly yes' \
			"UserKnownHostsFile $dir/known" 'StrictHostKeyChecking yes' >>"$dir/config"
		echo "[127.0.0.$((n + 1))]:$port $(cut -d' ' -f1,2 "$dir/host$n.pub")" >>"$dir/known"
	done
	for n in $(seq 100); do
		if grep -q 'Server listening' "$dir/log1" && grep -q 'Server listening' "$dir/log2"; then return; fi
		sleep 0.1
	done
	say "sshd does not start here: $(tail -1 "$dir/log1")"
	return 1
}

PATH=$PATH:/usr/sbin # where sshd is
mkdir -p build
need_go
find_python
step "Building bin/gorun" "a minute the first time"
make build
say "$(du -h bin/gorun | cut -f1) in one file, with its Python binding inside"

run=() flags=() hosts=host1:2,host2:2
if start_lab; then
	run=("$lab" --name "$name" run)
elif start_sshds; then
	flags=(--ssh-config "$dir/config")
else
	say "no hosts can be made here, so the four ranks run on this machine"
	hosts=localhost:4
fi

step "Training with four ranks" "half a minute"
say "gorun -v -np 4 -H $hosts $python $script"
started=$SECONDS
"${run[@]}" bin/gorun -v -np 4 -H "$hosts" "${flags[@]}" "$python" "$script"

if [ ${#run[@]} -gt 0 ]; then
	step "What is left on the hosts" "nothing should be, but the cached binary"
	sleep 1 # sshd takes a moment to notice that its client has gone
	"$lab" --name "$name" status
fi
printf '\nDone: the training took %d s.\n' "$((SECONDS - started))"
