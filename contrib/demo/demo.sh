#!/bin/bash
# Shows gorun at work: two hosts made out of this machine, four ranks, one training run over ssh, and one that loses a host.
# Without namespaces the hosts are two sshd's, without sshd this machine is the only one; without torch NumPy trains, and
# without NumPy the standard library. It asks before it installs a package, and without a terminal installs none.
set -euo pipefail
cd "$(dirname "$0")/../.."

# Whatever takes long, a line comes at least every ten seconds.
if [ -z "${DEMO_SPEAKS-}" ]; then
	DEMO_SPEAKS=yes "$0" | {
		line=''
		while code=0; IFS= read -r -t 8 part || code=$?; [ "$code" = 0 ] || [ "$code" -gt 128 ]; do
			line+=$part
			if [ "$code" != 0 ]; then echo "   ($SECONDS s)"; else printf '%s\n' "$line"; line=''; fi
		done
	}
	exit
fi

lab=build/lab
name=demo-$$
venv=build/demo-venv
began=$SECONDS

# shellcheck source=contrib/demo/sshds.sh
. contrib/demo/sshds.sh
# step announces the next step and about how long it takes.
step() { printf '\n\033[1m== %s\033[0m (%s)\n' "$1" "$2"; }
say() { printf '   %s\n' "$*"; }
# quietly runs a command as a step: what it prints is shown if it fails.
quietly() { contrib/tools/steps.sh 1 "$@" | sed -u 's/^/   /'; }

# choose sets python to one that has the modules, if there is one; python3 of Debian comes first, because
# that is what apt-get installs modules for.
choose() {
	for python in ${PYTHON:-/usr/bin/python3 python3} "$PWD/$venv/bin/python3"; do
		command -v "$python" >/dev/null && "$python" -c "import $1" 2>/dev/null && return
	done
	return 1
}

# offer asks whether to install what would make the demo better, if it may be installed.
offer() {
	local packages=() yes=
	choose numpy || packages+=(python3-numpy)
	command -v sshd >/dev/null || packages+=(openssh-server openssh-client)
	{ command -v ip && command -v tc; } >/dev/null || ! is_root || packages+=(iproute2)
	[ ${#packages[@]} -gt 0 ] || return 0
	say "this machine lacks ${packages[*]}, and the demo shows less without them"
	if ! [ -t 0 ] || ! is_root || ! command -v apt-get >/dev/null; then return; fi
	read -r -p "   Install them with apt-get? [y/N] " yes
	case $yes in [yY]*) ;; *) return ;; esac
	quietly "packages=apt-get update -qq; DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends ${packages[*]}" ||
		say "so the demo goes on without them"
}

# find_program sets python, and script to what it can train with; to nothing without NumPy.
find_program() {
	choose sys || { echo "demo: error: Python 3 is missing: apt-get install python3" >&2; exit 1; }
	script=contrib/examples/digits_torch.py
	! choose torch,sklearn || return 0
	script=contrib/examples/digits_numpy.py
	! choose numpy || return 0
	if quietly "numpy=${PYTHON:-python3} -m venv $venv; $venv/bin/pip -q install --disable-pip-version-check --retries 1 --timeout 8 numpy" &&
		choose numpy; then return; fi
	say "no NumPy here, and pip cannot get it: gorun bench and a program of the standard library show what works"
	choose sys
	script=
}

# start_lab makes two hosts, or fails.
start_lab() {
	is_root && { command -v ip && command -v tc && command -v sshd && command -v ssh; } >/dev/null || return 1
	step "Starting two hosts" "a second"
	say "each has its own address, processes, home and sshd: see contrib/lab"
	# A Python in a home is not seen by the hosts unless it is shared.
	local share=() prefix
	prefix=$("$python" -c 'import sys; print(sys.base_prefix)')
	case $prefix in /root/* | /home/* | /tmp/*) share=(--share "$prefix") ;; esac
	quietly "lab=go build -o $lab ./contrib/lab/cmd/lab" && "$lab" --name "$name" up "${share[@]}" 2 || return 1
	trap '"$lab" --name "$name" down' EXIT
}

# lose kills host2 and all that runs there; where this machine is the only host, the last rank.
lose() {
	if [ ${#run[@]} -gt 0 ]; then
		say "lab kill 2"
		"$lab" --name "$name" kill 2
	elif [ ${#flags[@]} -gt 0 ]; then
		say "kill -9 everything on host2"
		lose_host2
	else
		say "kill -9 a rank"
		victims=()
		for pid in $(tree "$job"); do if grep -q line.py "/proc/$pid/cmdline" 2>/dev/null; then victims+=("$pid"); fi; done
		kill -9 "${victims[-1]}"
	fi
}

PATH=$PATH:/usr/sbin # where sshd is
contrib/tools/need.sh go
mkdir -p build
step "Looking at this machine" "seconds; a minute if pip fetches NumPy"
offer
find_program
step "Building bin/gorun" "a minute or two the first time"
make build
say "$(du -h bin/gorun | cut -f1) in one file, with its Python binding inside"

run=() flags=() hosts=host1:2,host2:2
if start_lab; then
	run=("$lab" --name "$name" run)
else
	step "Starting two hosts without namespaces" "a second"
	say "this machine stands for both: each has an address, an sshd and a key of its own"
	if start_sshds; then
		flags=(--ssh-config "$dir/config")
	else
		say "so the four ranks run on this machine"
		hosts=localhost:4
	fi
fi

if [ -n "$script" ]; then
	step "Training with four ranks" "half a minute"
	say "gorun -v -np 4 -H $hosts $python $script"
	"${run[@]}" bin/gorun -v -np 4 -H "$hosts" "${flags[@]}" "$python" "$script"
else
	step "Adding up arrays with four ranks" "half a minute"
	say "gorun bench -np 4 -H $hosts --end 4M"
	"${run[@]}" bin/gorun bench -np 4 -H "$hosts" --end 4M "${flags[@]}"
fi

step "Losing a host in the middle of a training" "half a minute"
say "gorun -np 4 --min-np 2 -H $hosts $python contrib/demo/line.py"
exec 3< <(exec "${run[@]}" bin/gorun -np 4 --min-np 2 -H "$hosts" "${flags[@]}" "$python" contrib/demo/line.py 2>&1)
job=$! ended=""
while read -r line <&3; do
	echo "$line"
	case $line in
	*'step 20 of'*) lose ;;
	*'trained to the end'*) ended=${line#*: } ;;
	esac
done
if ! wait "$job" || [ -z "$ended" ]; then
	echo "demo: error: the training did not go on" >&2
	exit 1
fi

if [ ${#run[@]} -gt 0 ]; then
	step "What is left on the hosts" "nothing should be, but the cached binary"
	sleep 1 # sshd takes a moment to notice that its client has gone
	"$lab" --name "$name" status
fi
printf '\nDone in %d s. The training went on without what was killed.\n' "$((SECONDS - began))"
echo "Next: bin/gorun -np 4 -H HOST1:2,HOST2:2 python3 SCRIPT with hosts of yours; docs/index.md says more."
