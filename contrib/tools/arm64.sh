#!/bin/sh
# Compiles the C binding for arm64, and runs it and jobs in an emulator, as make arm64 does: arm64.sh QEMU
# It prints what this machine cannot do, and why, on standard output.
set -eu
cd "$(dirname "$0")/../.."

if [ "$1" != inside ]; then
	GOARCH=arm64 go test -count=1 -exec "$1" ./collective/kernel ./worker/session/codec >&2
	cc=${CC_ARM64:-aarch64-linux-gnu-gcc}
	mkdir -p build/arm64
	# compile NAME SOURCE…
	compile() {
		name=$1
		shift
		"$cc" -static -std=c11 -O2 -Wall -Wextra -Wconversion -Wno-sign-conversion -Wpedantic -Werror -pthread \
			-o "build/arm64/$name" "$@"
	}
	compile check-c contrib/c/check.c contrib/c/gorun.c
	compile check-messages contrib/c/check_messages.c
	compile example-c contrib/c/example.c contrib/c/gorun.c
	"$1" build/arm64/check-messages testdata/rankproto.txt >&2
	"$1" build/arm64/check-c >&2
	GOARCH=arm64 go build -o build/arm64/gorank ./contrib/examples/gorank
	rm -f build/arm64/check-library
	if [ -e build/libgorun-arm64.so ]; then
		cp build/libgorun-arm64.so build/arm64/libgorun.so
		"$cc" -std=c11 -O2 -Wl,-rpath,"$PWD/build/arm64" -o build/arm64/check-library contrib/c/check.c build/arm64/libgorun.so
	else
		echo "arm64: libgorun: no compiler for it, make zig-ready"
	fi
	# In a user namespace of its own, which has its own table of emulators, so that the machine's does not change.
	exec unshare --user --map-root-user --mount "$0" inside "$1"
fi
qemu=$2
table=/proc/sys/fs/binfmt_misc
if mount -t binfmt_misc none $table 2>/dev/null; then
	# An ELF file of 64 bits, little-endian, a program (2) or a position-independent one (3), for machine 183.
	magic='\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00'
	mask='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'
	printf '%s:%s:F' ":gorun-arm64:M::$magic:$mask" "$qemu" >$table/register
elif [ ! -e $table/qemu-aarch64 ]; then
	echo "arm64: jobs: a user namespace has no table of emulators of its own before Linux 6.7"
	exit 0
fi

# job GORUN NP PROGRAM…
job() {
	gorun=$1 np=$2
	shift 2
	echo "$gorun -np $np $*" >&2
	timeout 120 "$gorun" -np "$np" --no-tag-output "$@" >&2
}

check() {
	job "$1" 2 build/arm64/gorank
	job "$1" 2 build/arm64/example-c
	for np in 1 2 3; do job "$1" $np build/arm64/check-c; done
	# This one is not static: it has libgorun as hosts get it, and the C library of the compiler for arm64.
	[ ! -e build/arm64/check-library ] || job "$1" 2 -x QEMU_LD_PREFIX=/usr/aarch64-linux-gnu build/arm64/check-library
	for begun in 0 1 2; do job "$1" 3 build/arm64/check-c $begun; done
}

# Ranks for arm64, with a launcher and a daemon for this machine; then all of them for arm64.
check bin/gorun
if build/arm64/gorun -np 1 /bin/true 2>&1 | grep 'become child subreaper: invalid argument' >&2; then
	echo "arm64: launcher and daemon: this qemu-user has no child subreapers, later ones (10.0) have"
	exit 0
fi
check build/arm64/gorun
