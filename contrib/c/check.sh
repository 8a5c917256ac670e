#!/bin/bash
# Compiles what holds the C library to its promises, every warning an error, and runs it in worlds of 1 to 3 ranks:
#
#	check.sh binding                     under the sanitizers of memory and threads, by itself and by bin/gorun
#	check.sh faces                       the operations of TensorFlow, XLA and MPI, with stand-ins for those, and forking
#	check.sh sanitized PYTHON VERSION    the operations of TensorFlow and JAX, and a program of JAX alone, with a libgorun that
#	                                     the sanitizers of memory watch
#	check.sh python PYTHON VERSION       the tests of Python, with such a libgorun: those that load another one are left out
set -euo pipefail
cd "$(dirname "$0")/../.."
command -v cc >/dev/null || { echo "C binding: no C compiler, apt-get install gcc" | tee -a build/skips; [ -n "${BUILT:-}" ]; exit; } # asked for, it fails
set -x
memory=address,undefined
strict=(-std=c11 -O1 -g -Wall -Wextra -Wconversion -Wno-sign-conversion -Wpedantic -Werror -pthread -rdynamic)

# compile NAME SANITIZERS SOURCE…
compile() {
	cc "${strict[@]}" ${2:+-fsanitize=$2} -o "build/$1" "${@:3}" -ldl
}

# worlds PROGRAM…: each program in worlds of 1 to 3 ranks. The sanitizer of threads needs addresses that are not random.
worlds() {
	for np in 1 2 3; do
		for program in "$@"; do
			case $program in
			*-races) bin/gorun -np $np --no-tag-output setarch -R "build/$program" ;;
			*) bin/gorun -np $np --no-tag-output "build/$program" ;;
			esac
		done
	done
}

binding() {
	if cc -ffast-math -fsyntax-only contrib/c/gorun.c 2>build/fast-math; then
		echo "gorun.c takes -ffast-math"
		exit 1
	fi
	grep -q 'without -ffast-math' build/fast-math
	if command -v c++; then echo '#include "gorun.h"' | c++ -Wall -Wextra -Wpedantic -Werror -fsyntax-only -Icontrib/c -xc++ -; fi
	cc -std=c11 -O2 -Wall -Werror -pthread -o build/example-c contrib/c/example.c contrib/c/gorun.c
	compile check-messages $memory contrib/c/check_messages.c
	compile check-c $memory contrib/c/check.c contrib/c/gorun.c
	compile check-threads $memory contrib/c/check_threads.c contrib/c/gorun.c
	compile check-threads-races thread contrib/c/check_threads.c contrib/c/gorun.c
	build/check-messages testdata/rankproto.txt
	build/check-c
	build/check-threads
	worlds check-c check-threads check-threads-races
	for begun in 0 1 2; do bin/gorun -np 3 --no-tag-output build/check-c $begun; done
	bin/gorun -np 2 --no-tag-output build/example-c
}

faces() {
	for face in tensorflow xla mpi; do
		sources=("contrib/c/check_$face.c" contrib/c/gorun.c)
		[ $face != tensorflow ] || sources+=(contrib/c/tensorflow.c) # the others include theirs
		compile check-$face $memory "${sources[@]}"
		compile check-$face-forks "" "${sources[@]}"
		compile check-$face-races thread "${sources[@]}"
		worlds check-$face check-$face-forks check-$face-races
	done
}

# watched VERSION: build/sanitized, with a gorun that has a libgorun which the sanitizers of memory watch.
watched() {
	to=$PWD/build/sanitized
	rm -rf "$to"
	mkdir -p "$to/bin" "$to/contrib"
	cc -std=c11 -O1 -fPIC -shared -o "$to/dlopen.so" contrib/c/check_dlopen.c -ldl
	cc -std=c11 -O1 -g -fno-omit-frame-pointer -fPIC -shared -fvisibility=hidden -fsanitize=$memory -Wl,-soname,libgorun.so \
		-o "$to/libgorun.so" contrib/c/{gorun,tensorflow,xla,mpitrampoline}.c -lpthread -ldl
	go run ./contrib/tools/pyzip -version "$1" -library "$to/libgorun.so" -program build/gorund-rdma \
		-o "$to/bin/gorun" build/gorun contrib/python gorun shim
	preload="$to/dlopen.so $(cc -print-file-name=libasan.so) $(cc -print-file-name=libubsan.so)"
	export ASAN_OPTIONS=detect_leaks=0:verify_asan_link_order=0 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
}

sanitized() { # PYTHON VERSION
	watched "$2"
	for program in tests/tf/test_ops tests/jax/test_operations "--jax-engine gorun tests/jax/programs/mesh"; do
		read -ra words <<<"$program"
		"$to/bin/gorun" -np 2 --no-tag-output "${words[@]::${#words[@]}-1}" -x LD_PRELOAD="$preload" -x JAX_PLATFORMS=cpu \
			"$1" -B "contrib/python/${words[-1]}.py"
	done
}

python() { # PYTHON VERSION
	watched "$2"
	cp -r contrib/python "$to/contrib/python"
	ln -sf "$to/libgorun.so" "$to/contrib/python/gorun/libgorun.so"
	rm "$to"/contrib/python/tests/test_{native,wheel}.py
	ln -s "$PWD"/{testdata,docs,README.md} "$to"
	for other in contrib/*; do [ "$other" = contrib/python ] || ln -s "$PWD/$other" "$to/contrib"; done
	cd "$to"
	LD_PRELOAD=$preload PYTHONPATH=contrib/python:contrib/python/shim PYTHONDONTWRITEBYTECODE=1 \
		"$1" -m unittest discover -s contrib/python/tests
}

"$@"
