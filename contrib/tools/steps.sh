#!/bin/bash
# Runs steps, some beside each other, and prints a line for each that ends, and one at least every ten seconds:
#
#	contrib/tools/steps.sh N STEP…    N at a time; a STEP is a target of make, or NAME=COMMAND
#
# What a step prints is in build/log/NAME. It is shown if the step fails; otherwise only lines that begin with "note: ".
cd "$(dirname "$0")/../.." || exit
mkdir -p build/log
set -m # a group for each step, so that a signal reaches all of it
names=() pid="" pids=() starts=() status=0 at_once=$1 spoke=$SECONDS
shift
trap 'for pid in "${pids[@]}"; do kill -INT -- "-$pid"; done 2>/dev/null; wait; exit 130' INT TERM

log() { echo "build/log/${names[$1]//\//-}"; }

begin() { # STEP
	local n=${#names[@]}
	names+=("${1%%=*}") starts+=("$SECONDS")
	case $1 in
	*=*) bash -o pipefail -euc "${1#*=}" ;;
	*) "${MAKE:-make}" "$1" ;;
	esac </dev/null >"$(log "$n")" 2>&1 &
	pids[n]=$!
}

end() { # INDEX
	local took=$((SECONDS - starts[$1]))
	if wait "${pids[$1]}"; then
		echo "${names[$1]}: done in $took s"
		grep '^note: ' "$(log "$1")"
	else
		status=1
		echo "${names[$1]}: FAILED after $took s:"
		cat "$(log "$1")"
	fi
	unset "pids[$1]"
	spoke=$SECONDS
}

# speak says which steps run, and the last that one of them has printed.
speak() {
	local n text=
	for n in "${!pids[@]}"; do text+="${text:+, }${names[n]} $((SECONDS - starts[n])) s"; done
	echo "  running: $text: $(tail -n 1 "$(log "$n")" | cut -c 1-80)"
	spoke=$SECONDS
}

while [ $# -gt 0 ] || [ ${#pids[@]} -gt 0 ]; do
	while [ $# -gt 0 ] && [ ${#pids[@]} -lt "$at_once" ]; do
		begin "$1"
		shift
	done
	sleep 0.2
	for n in "${!pids[@]}"; do kill -0 "${pids[n]}" 2>/dev/null || end "$n"; done
	[ $((SECONDS - spoke)) -lt 8 ] || speak
done
exit $status
