#!/bin/bash
# Two hosts without namespaces, for scripts that source this and have a function "say": host1 is an sshd on 127.0.0.2, host2 one
# on 127.0.0.3, with keys of their own. They end with the script. The file config in the directory dir is for gorun --ssh-config.

is_root() { [ "$(id -u)" = 0 ]; }

# start_sshds makes two hosts, or says why not and fails.
start_sshds() {
	if ! { command -v sshd && command -v ssh-keygen; } >/dev/null; then
		say "no sshd here: apt-get install openssh-server openssh-client"
		return 1
	fi
	local n port=$((20000 + RANDOM % 10000)) # not by $$, which containers share
	dir=$(mktemp -d) sshds=()
	trap 'kill "${sshds[@]}" 2>/dev/null || :; rm -r "$dir"' EXIT
	if is_root; then mkdir -p /run/sshd; fi
	ssh-keygen -q -t ed25519 -N '' -f "$dir/login"
	for n in 1 2; do
		ssh-keygen -q -t ed25519 -N '' -f "$dir/host$n"
		printf '%s\n' "ListenAddress 127.0.0.$((n + 1)):$port" "HostKey $dir/host$n" "AuthorizedKeysFile $dir/login.pub" \
			'StrictModes no' 'UsePAM no' 'PidFile none' 'PasswordAuthentication no' >"$dir/sshd$n"
		"$(command -v sshd)" -D -e -f "$dir/sshd$n" 2>"$dir/log$n" &
		sshds+=($!)
		disown
		printf '%s\n' "Host host$n" "HostName 127.0.0.$((n + 1))" "Port $port" "IdentityFile $dir/login" 'IdentitiesOnly yes' \
			"UserKnownHostsFile $dir/known" 'StrictHostKeyChecking yes' >>"$dir/config"
		echo "[127.0.0.$((n + 1))]:$port $(cut -d' ' -f1,2 "$dir/host$n.pub")" >>"$dir/known"
	done
	for n in $(seq 100); do
		if grep -q 'Server listening' "$dir/log1" && grep -q 'Server listening' "$dir/log2"; then break; fi
		sleep 0.1
	done
	for n in 1 2; do
		if ! ssh -n -F "$dir/config" -o BatchMode=yes -o ConnectTimeout=8 "host$n" true >"$dir/ssh" 2>&1; then
			say "sshd lets nobody in here: $(tail -qn 1 "$dir/ssh" "$dir/log$n" | paste -sd ' ')"
			return 1
		fi
	done
}

# tree prints a process and all that descend from it, the youngest last.
tree() {
	local child
	echo "$1"
	# shellcheck disable=SC2013 # a line of words
	for child in $(cat "/proc/$1/task/"*/children 2>/dev/null || :); do tree "$child"; done
}

# lose_host2 kills host2 and all that runs there.
lose_host2() {
	mapfile -t victims < <(tree "${sshds[1]}")
	kill -9 "${victims[@]}"
}
