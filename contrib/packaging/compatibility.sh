#!/bin/bash
# Tries this gorun with an older one, on this machine:
#
#   contrib/packaging/compatibility.sh bin/gorun REVISION
#
# The older one is built from its revision, once, and its C binding is compiled. docs/reference/compatibility.md says
# which of them work together; this checks that those do, and that the others refuse each other in one clear line.
set -euo pipefail

new=$(realpath "$1") source=$PWD/build/baseline
git cat-file -e "$2^{commit}" || { echo "compatibility: error: this clone lacks $2: git fetch --unshallow --tags" >&2; exit 1; }
if [ "$(cat "$source/revision" 2>/dev/null)" != "$2" ]; then
	rm -rf "$source"
	mkdir -p "$source"
	git archive "$2" | tar -x -C "$source"
	case $2 in v*) version=${2#v} ;; *) version=0.0.0+$2 ;; esac
	make -C "$source" build VERSION="$version"
	echo "$2" >"$source/revision"
fi
old=$source/bin/gorun
scratch=$(mktemp -d)
cd "$scratch"
export GORUN_ALLOW_ROOT=1 XDG_STATE_HOME=$scratch/state GORUN_CLUSTER_KEY_FILE=$scratch/key
GORUN_CLUSTER=127.0.0.1:$((20000 + $$ % 10000))
export GORUN_CLUSTER
head -c 32 /dev/urandom | base64 >key
chmod 600 key
daemon=
end() {
	[ -z "$daemon" ] || kill "$daemon" 2>/dev/null || :
	wait
	rm -rf "$scratch"
}
trap end EXIT

fail() { echo "compatibility: error: $*" >&2 && exit 1; }
await() {
	for _ in $(seq 600); do "$@" >/dev/null 2>&1 && return; sleep 0.1; done
	fail "waited a minute for: $*"
}
# serve starts a resident daemon, as systemd does.
serve() {
	"$1" worker --cluster-key-file key --name here --address 127.0.0.1 --listen "$GORUN_CLUSTER" --slots 2 2>>daemon.log &
	daemon=$!
	await "$1" ps
}
number() { "$1" version | cut -d' ' -f2; }
[ "$(number "$new")" != "$(number "$old")" ] || fail "both are gorun $(number "$new")"

# refused checks that a launcher that asks a daemon of the other version gets one line and a hint.
refused() {
	local launcher=$1 other=$2 code=0
	"$launcher" -np 1 true >said 2>&1 || code=$?
	[ "$code" -ne 0 ] || fail "gorun $(number "$launcher") started a job on a daemon of gorun $(number "$other")"
	cat said
	[ "$(grep -c '^gorun: error: ' said)/$(grep -vc '^gorun: ' said || :)" = 1/0 ] || fail "not one line"
	grep -q "the daemon is gorun $(number "$other"), this is $(number "$launcher")\$" said || fail "the line lacks a version"
}

echo "== a new launcher and an old resident daemon"
serve "$old"
refused "$new" "$old"

echo "== a job that runs while its resident daemon is upgraded"
cat >steps.py <<'PYTHON'
import os, time, sys
import numpy as np
import gorun.numpy as hvd
hvd.init()
if hvd.rank() == 0:
    open("begun", "w").close()
while hvd.allreduce(np.array([float(os.path.exists("upgraded"))]), op=hvd.Sum)[0] < hvd.size():
    time.sleep(0.05)
if hvd.rank() == 0:
    print("sum", hvd.allreduce(np.ones(100_000), op=hvd.Sum)[0])
else:
    hvd.allreduce(np.ones(100_000), op=hvd.Sum)
PYTHON
"$old" -np 2 --no-tag-output "${PYTHON:-python3}" steps.py >job 2>&1 &
job=$!
await test -e begun
kill -HUP "$daemon"
wait "$daemon" || :
serve "$new"
touch upgraded
wait "$job" || { cat job; fail "the job ended with the upgrade"; }
grep -q '^sum 2.0$' job || { cat job; fail "the job has another result"; }

echo "== an old launcher and the new resident daemon"
refused "$old" "$new"
kill "$daemon"
wait "$daemon" || :
daemon=
unset GORUN_CLUSTER GORUN_CLUSTER_KEY_FILE

cat >sum.py <<'PYTHON'
import sys
sys.path.insert(0, sys.argv[1])
import numpy as np
import gorun, gorun.numpy as hvd
assert gorun.__file__.startswith(sys.argv[1]), gorun.__file__
hvd.init()
for n in (1, 1000, 1_000_000):
    for _ in range(3):
        assert (hvd.allreduce(np.ones(n), op=hvd.Sum, name="x") == hvd.size()).all()
print("binding", gorun.__version__)
PYTHON
# binding runs ranks with the Python binding of one binary under the daemon of another.
binding() {
	echo "== the Python binding of gorun $(number "$2") under the daemon of gorun $(number "$1")"
	"$1" -np 2 --no-tag-output "${PYTHON:-python3}" sum.py "$2"
}
binding "$new" "$old"
binding "$old" "$new"

here=$(dirname "$new")/..
for pair in "$new $source" "$old $here"; do
	read -r daemon_of tree <<<"$pair"
	echo "== the C binding of $tree under the daemon of gorun $(number "$daemon_of")"
	cc -std=c11 -O2 -pthread -o example "$tree/contrib/c/example.c" "$tree/contrib/c/gorun.c"
	"$daemon_of" -np 2 --no-tag-output ./example
done
echo "gorun $(number "$new") and gorun $(number "$old") work together as far as the rules go."
