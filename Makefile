SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -euc
MAKEFLAGS += --warn-undefined-variables --no-print-directory
.DEFAULT_GOAL := build

export CGO_ENABLED := 0
# Each module here is built by itself, whatever workspace the user has.
export GOWORK := off
CI ?=
VERSION ?= $(shell contrib/tools/version.sh)
RUFF := 0.16.9
FUZZTIME ?= 10s
MINUTES ?= 3
# Large downloads and builds are made once per version, outside this tree.
CACHE := $(shell echo "$${XDG_CACHE_HOME:-$$HOME/.cache}")/gorun-ci
# A Python with torch 2, for make torch2 and make torch-suite.
TORCH2_VERSION := 2.15.0
TORCH2_VENV := $(CACHE)/torch2-$(TORCH2_VERSION)
TORCH2 ?= $(TORCH2_VENV)/bin/python
# Pythons with TensorFlow, Keras 3 and JAX, of now and of a year before, and with the last Keras 2, for make frameworks.
KERAS3_VENV := $(CACHE)/tensorflow-2.21.0-jax-0.10.2
KERAS3_OLD_VENV := $(CACHE)/tensorflow-2.18.1-jax-0.5.3
KERAS2_VENV := $(CACHE)/tensorflow-2.15.1
TENSORFLOWS ?= $(KERAS3_VENV) $(KERAS3_OLD_VENV) $(KERAS2_VENV) $(TORCH2_VENV)
# A Python with Ray and Spark.
RAY_VENV := $(CACHE)/ray-client-2.60.0-spark-4.3.0
# A program that reads bills of materials, for make release-check.
SPDX_VENV := $(CACHE)/spdx-tools-0.8.5
TORCH2_NP ?= 1 2 3 4

AXE_VERSION := 4.14.1
AXE := $(CACHE)/axe-core-$(AXE_VERSION)/axe.min.js
# The programs of make docs, by pip: a release of the requirements is installed once.
DOCS_VENV := $(CACHE)/docs-$(shell sha256sum contrib/tools/docs/requirements.txt | cut -c1-12)
DOCS := $(DOCS_VENV)/bin/python -B contrib/tools/docs

# The Python with most of the modules that the Python tests and examples use; the tests report missing ones.
PYTHON ?= $(shell for modules in numpy,torch,sklearn numpy,torch numpy sys; do \
	for python in /usr/bin/python3 python3; do \
	$$python -c "import $$modules" 2>/dev/null && echo $$python && exit; done; done; echo python3)

# The pure packages, as cmd/gorun/deps_test.go lists them. They have no goroutines, so the race detector finds nothing.
PURE := $(shell sed -n '/pure *= \[\]string{/s/.*{\(.*\)}/\1/p' cmd/gorun/deps_test.go | grep -o '[a-z0-9/]*[a-z0-9]')
$(if $(PURE),,$(error no list of pure packages in cmd/gorun/deps_test.go))
PURE_PACKAGES := $(PURE:%=./%)
# The families of end-to-end tests. Package speed, which measures rates, runs by itself.
# Those that take longest start first.
LONG_FAMILIES := elastic faults launch vm python cluster
FAMILIES ?= $(LONG_FAMILIES) $(filter-out $(LONG_FAMILIES) speed e2etest testdata,$(notdir $(patsubst %/,%,$(wildcard contrib/e2e/*/))))
# The race detector needs a C compiler, on Linux.
RACE := $(shell command -v gcc clang cc >/dev/null && echo -race)
# Runs go test and reports the results; tests that contrib/tools/report/again.txt lists run again, alone, if they fail beside others.
REPORT = build/report -skips build/skips -figures build/figures -again $(AGAIN)
STATICCHECK := go tool -modfile=contrib/tools/lint/go.mod staticcheck -checks all,-ST1003,-ST1016,-ST1023
GOFILES = $(shell find . -name '*.go' -not -path './build/*')

# The list of tests that ran a second time is of one make and the makes that it calls, so it carries this make's pid.
ifeq ($(MAKELEVEL),0)
export AGAIN := build/again-$(shell rm -f build/again-$$PPID; echo $$PPID)
endif

# Every target that a line below documents.
.PHONY: $(shell sed -n 's/^\#\# \([a-z0-9-]*\):.*/\1/p' Makefile)

##@ Every day

## build: make bin/gorun, one static binary that contains the Python binding and the programs for hosts
# A make that has built it calls others with BUILT=yes.
BUILT ?=
build:
	$(if $(BUILT),@:,$(call gorun,$$(go env GOARCH),bin/gorun))

# gorun for an architecture, into a file. The program for hosts goes where cmd/gorun/program_embedded.go embeds it.
gobuild = GOARCH=$(1) go build -trimpath -buildvcs=false -tags urfave_cli_no_docs,nethttpomithttp2,gorund$(3) -ldflags '-s -w -X main.version=$(VERSION) $(2)'
pyzip = go run ./contrib/tools/pyzip -version $(VERSION) -library build/libgorun-$(3).so $(4) -o $(2) $(1) contrib/python gorun shim
gorun = ZIG=$(ZIG) contrib/tools/library.sh $(1) build/libgorun-$(1).so; \
	$(call gobuild,$(1),,) -o build/gorund ./cmd/gorund; $(call pyzip,build/gorund,cmd/gorun/gorund,$(1),); \
	$(call gobuild,$(1),,$(comma)rdma) -o build/gorund-rdma ./cmd/gorund; \
	$(call gobuild,$(1),,) -o build/gorun ./cmd/gorun; $(call pyzip,build/gorun,$(2),$(1),-program build/gorund-rdma)
comma := ,
# A C compiler for both architectures and old versions of glibc. What is built for others has the library by it.
ZIG_VERSION := 0.16.0
ZIG := $(CACHE)/zig-$(ZIG_VERSION)

## demo: two hosts made of this machine train a small network with 4 ranks over ssh
demo:
	contrib/demo/demo.sh

## quick: lint, the unit tests of what changed, and a few jobs on lab hosts: under two minutes once everything is built
# The end-to-end tests that show most faults in little time.
SMOKE := TestMistakes|TestUploadOnce|TestIPv6|TestLeaseOfOne|TestPowerOff|TestEncrypt|TestTopo|TestClusterSpare|TestC|TestAlgorithms
quick: build build/report
	@failed=; $(BESIDE) lint $(UNIT) || failed=yes; $(MAKE) e2e-families E2E_RUN='$(SMOKE)' || failed=yes; \
	$(again); [ -z "$$failed" ]

## test: everything that must pass before a change is merged, and a list of skipped tests; the figures of Go tests are in build/figures
# Tests that a machine cannot run are skipped with the reason; where CI is set, only what .ci/run cannot install may be missing.
MAY_SKIP := no GPU that torch can use|no Python with TensorFlow|set HOROVOD_PYTHON|set FRAMEWORKS_PYTHON|set JAX_PYTHON|this kernel has no macvlan|one CPU leaves|may not make control groups|no loop device|before Linux 6.7|this qemu-user has no child subreapers|a part of make vm:|a part of make bench-rdma-vm:|a part of make torch2|a part of make slurm:|a part of make provision:|a part of make test-all
# Tests that run beside each other, the longest first, and those that follow: they measure times, or fill the machine themselves.
TESTS = python $(UNIT) lab lint c verbs vsphere grafana kubernetes
TESTS_AFTER := e2e allocations
test: build build/report
	@rm -f build/skips build/figures
	@failed=; $(BESIDE) $(TESTS) || failed=yes; $(MAKE) -k BUILT=yes $(TESTS_AFTER) || failed=yes; \
	if [ -s build/skips ]; then echo "Skipped on this machine:"; sed 's/^/  /' build/skips; \
	if [ -n "$(CI)" ] && grep -vE '$(MAY_SKIP)' build/skips >build/wrongly-skipped; then \
	echo "May not be skipped where CI is set:"; cat build/wrongly-skipped; failed=yes; fi; \
	else echo "Nothing was skipped."; fi; \
	$(again); [ -z "$$failed" ]

# Makes targets beside each other; what each prints comes when it has ended. Many tests wait, so three keep two processors busy.
BESIDE = $(MAKE) -k -j3 -Otarget BUILT=yes

# Prints the tests that ran a second time.
again = if [ -s $(AGAIN) ]; then echo "Run a second time, alone, which a test of contrib/tools/report/again.txt, and two more, may be once:"; sort $(AGAIN) | uniq -c; rm $(AGAIN); \
	else echo "No test was run a second time."; fi

## test-all: make test and the long tests: waits at the scale of users, every seed and size, random orders, faults for minutes; each night
# What lies in the cache by make ray-ready, provision-ready and kubernetes-ready.
CLUSTERS = $(if $(wildcard $(RAY_VENV)/ready),ray $(if $(shell command -v java),spark)) \
	$(if $(wildcard $(ANSIBLE_VENV)/ready),$(if $(shell command -v cloud-init),provision)) \
	$(if $(wildcard $(KUBERNETES)/ready),test-kubernetes)
test-all:
	@failed=; $(MAKE) test E2E_SHORT= UNIT_FLAGS="-count=1 -shuffle=on" GORUN_RACE=$(RACE) MATRICES= || failed=yes; \
	go test -count=1 ./contrib/tools/rename -build || failed=yes; \
	for part in chart imports arm64 faces e2e-race fuzz vm soak trials $(CLUSTERS); do $(MAKE) $$part SOAK=5m || failed=yes; done; [ -z "$$failed" ]

## check: the same as test
check: test

##@ Parts of make test

## lint: gofmt, go vet (for macOS too), staticcheck, ruff, shellcheck, and what the pages of docs name
lint: build build/ruff-$(RUFF)
	@$(PAGES) --no-site
	@wrong=$$(gofmt -l $(GOFILES)); [ -z "$$wrong" ] || { echo "gofmt: make fix would change $$wrong"; exit 1; }
	go vet ./...
	GOOS=darwin GOARCH=arm64 go vet ./cmd/... ./launcher/...
	GOARCH=arm64 go vet ./collective/kernel
	$(STATICCHECK) ./...
	@if [ -x build/ruff/bin/ruff ]; then build/ruff/bin/ruff check contrib testdata; fi
	@if command -v shellcheck >/dev/null; then shellcheck .ci/run contrib/demo/*.sh contrib/packaging/[ac]*.sh && shellcheck -s sh contrib/packaging/p*.sh && shellcheck -s sh contrib/tools/*.sh contrib/lab/*.sh contrib/e2e/cluster/testdata/*.sh; \
	else echo "shellcheck: apt-get install shellcheck" | tee -a build/skips; fi

## fix: repair lint errors, where a program can
fix: build/ruff-$(RUFF)
	gofmt -w $(GOFILES)
	@if [ -x build/ruff/bin/ruff ]; then build/ruff/bin/ruff check --fix contrib testdata; fi

## unit: the Go unit tests, with the race detector where there are goroutines; results of unchanged packages are cached
# These flags must not prevent caching: no -count, no -shuffle.
UNIT_FLAGS ?= -short
# Tests of cmd/gorun start whole jobs, and take ten times as long with the race detector: make test-all sets it to -race.
GORUN_RACE ?=
# Tests that read the sources of the module, and so directories in which make writes: go test cannot cache their results.
SOURCES := TestImports|TestVariablesAreDocumented|TestRules|TestParsersAreFuzzed|TestHintsNameWhatExists|TestMessagesAre.*
# Tests of collective with every type and reduction, which do not change what its goroutines share, and take 15 times as long with it.
MATRICES ?= TestReduce|TestAlgorithms|TestAllreduce|TestMatrix|TestReduceScatter|TestCodedSums
UNIT_PACKAGES = $$(go list ./... | grep -v -e /contrib/lab -e /contrib/e2e -e /contrib/tools/house -e /contrib/tools/rename -e /cmd/gorun$$ -e /collective$$ | grep -vxF "$$(go list $(PURE_PACKAGES))")
UNIT := unit-race unit-gorun unit-collective unit-pure unit-sources
.PHONY: unit-race unit-gorun unit-collective unit-pure unit-sources
unit: build build/report
	@$(BESIDE) $(UNIT)
# Packages wait for different things at different times, so three at a time keep two processors busy.
unit-race: build/report
	@[ -n "$(RACE)" ] || echo "race detector: no C compiler, apt-get install gcc" >>build/skips
	@CGO_ENABLED=$(if $(RACE),1,0) $(REPORT) -packages "$(UNIT_PACKAGES)" go test -json $(RACE) -p=3 -timeout=10m $(UNIT_FLAGS)
unit-collective: build/report
	@CGO_ENABLED=$(if $(RACE),1,0) $(REPORT) -packages ./collective go test -json $(RACE) -timeout=10m $(UNIT_FLAGS) $(if $(MATRICES),-skip '^($(MATRICES))$$')
	@$(if $(MATRICES),$(REPORT) -packages ./collective go test -json -timeout=10m $(UNIT_FLAGS) -run '^($(MATRICES))$$')
unit-pure: build/report
	@$(REPORT) -packages "$(PURE_PACKAGES)" go test -json $(UNIT_FLAGS)
unit-gorun: build build/report
	@CGO_ENABLED=$(if $(GORUN_RACE),1,0) $(call unit-of-gorun) $(GORUN_RACE) -timeout=20m -skip '$(SOURCES)'
unit-sources: build/report
	@$(call unit-of-gorun) -run '$(SOURCES)'
	@$(REPORT) -packages ./contrib/tools/house go test -json $(UNIT_FLAGS)
	@$(REPORT) -packages ./contrib/tools/rename go test -json $(UNIT_FLAGS) -run TestChange
unit-of-gorun = GORUN_E2E_BINARY=$(E2E_BINARY) $(REPORT) -packages ./cmd/gorun go test -json $(UNIT_FLAGS)

## allocations: the tests that the race detector would distort: under it pools drop their contents, and times differ
allocations: build/report
	@$(REPORT) -packages "$$(grep -rl --include=*_test.go 'func Test[A-Za-z]*Alloc' collective worker | xargs -n 1 dirname | sed 's,^,./,' | sort -u)" \
		go test -json -run Alloc
	@$(REPORT) -packages "./topology ./launcher/metrics" go test -json -run InTime

## lab: the tests of the lab itself: hosts, networks and faults that other tests are made of
lab: build/report
	@CGO_ENABLED=$(if $(RACE),1,0) $(REPORT) -packages ./contrib/lab/... go test -json $(RACE) -count=1

## e2e: the end-to-end tests, of the built binary on lab hosts; they need root, sshd and iproute2 (FAMILIES="launch vm" E2E_SHORT=)
# The binary is made once. The tests mostly wait, so many run at a time; package speed runs alone.
E2E_SHORT ?= -short
E2E_BINARY ?= $(CURDIR)/bin/gorun
e2e: build build/report
	@failed=; $(MAKE) e2e-families E2E_SKIP='$(ALONE)' || failed=yes; \
	$(MAKE) e2e-families FAMILIES=faults E2E_RUN='$(ALONE)' E2E_FLAGS="$(E2E_SHORT) -parallel=2" || failed=yes; \
	$(MAKE) e2e-families FAMILIES=speed || failed=yes; [ -z "$$failed" ]

# Tests of family faults that need a machine for themselves: no rank may wait for half a second, or lack CPU time.
ALONE := TestAddressChange|TestWhyNamesShortages

## security: what nobody may do without the key: a relay, replays, floods of each listener, other users of a host; the cluster's keys
# make test runs these tests too, among the others.
SECURITY := Test(Hostile|Key|RequireEncrypt)
security: build build/report
	@$(REPORT) -packages "$$(grep -rlE --include='*_test.go' 'func $(SECURITY)' cmd collective launcher rendezvous topology worker contrib/e2e | \
		xargs -n 1 dirname | sort -u | sed 's,^,./,')" env GORUN_E2E_BINARY=$(E2E_BINARY) go test -json -count=1 $(E2E_FLAGS) -run '^$(SECURITY)'
	@cd contrib/python/tests && PYTHONPATH=..:../shim $(PYTHON) -m unittest -k hostile

# e2e-families tests some families with an existing binary.
E2E_RUN ?=
E2E_SKIP ?=
E2E_FLAGS ?= $(E2E_SHORT) -p=3 -parallel=4
.PHONY: e2e-families
e2e-families:
	@GORUN_E2E_BINARY=$(E2E_BINARY) $(REPORT) -packages "$(FAMILIES:%=./contrib/e2e/%)" go test -json -count=1 -timeout=40m $(E2E_FLAGS) $(if $(E2E_RUN),-run "^($(E2E_RUN))$$") $(if $(E2E_SKIP),-skip "^($(E2E_SKIP))$$")

## e2e-race: end-to-end tests by a binary with the race detector, launcher and daemons alike (RACE_FAMILIES="cluster elastic")
# Script tests have it too (make unit), but on one machine. A program in which it finds a race exits with status 66.
RACE_FAMILIES ?= cluster elastic faults
e2e-race: build/report
	@mkdir -p build/race
	export CGO_ENABLED=1 GOFLAGS=-race; $(call gorun,$$(go env GOARCH),build/race/gorun)
	@status=0; $(MAKE) e2e-families E2E_BINARY=$(CURDIR)/build/race/gorun FAMILIES="$(RACE_FAMILIES)" E2E_FLAGS="-short -p=1 -parallel=4" || status=$$?; \
	$(MAKE) build; exit $$status # as what lies in cmd/gorun has the race detector now

## python: the tests of the Python binding
python: build
	@echo "Python tests with $(PYTHON)"
	$(PYTHON) -B -m unittest discover -s contrib/bench
	PYTHONPATH=contrib/python:contrib/python/shim PYTHONDONTWRITEBYTECODE=1 \
		$(PYTHON) -m unittest discover -v -s contrib/python/tests 2>&1 | tee build/python.log | grep -v '\.\.\. ok$$'
	@{ grep -o '^test.*\.\.\. skipped.*' build/python.log || :; } >>build/skips
	cd / && PYTHONPATH=$(CURDIR)/bin/gorun:$(CURDIR)/bin/gorun/shim $(PYTHON) -c 'import gorun, horovod'

## verbs: the binding of libibverbs (build tag rdma) against Debian's headers, and against a stand-in for the library
verbs: build/report
	CGO_ENABLED=0 go vet -tags rdma ./collective/verbs/...
	@CGO_ENABLED=0 $(REPORT) -packages ./collective/verbs/ibverbs go test -json -tags rdma $(UNIT_FLAGS)

## gpu: hold the stand-ins for CUDA's driver and NCCL against NVIDIA's headers, and gorun's kernels against its assembler: HEADERS=directories of cuda.h and nccl.h PTXAS=program
# NVIDIA's wheels on PyPI have them: nvidia-cuda-runtime-cu12, nvidia-nccl-cu12, nvidia-cuda-nvcc-cu12. make python builds and runs the stand-ins.
gpu:
	@[ -n "$(HEADERS)$(PTXAS)" ] || { echo "gpu: HEADERS=directories of NVIDIA's cuda.h and nccl.h, PTXAS=its assembler"; exit 2; }
	@if [ -n "$(HEADERS)" ]; then set -x; for standin in cuda ptx nccl; do \
	cc -std=c11 -Wall -Wextra -Werror -fsyntax-only -DHEADERS $(addprefix -isystem ,$(HEADERS)) contrib/gpu/$$standin.c || exit 1; done; fi
	@if [ -n "$(PTXAS)" ]; then $(PYTHON) -B contrib/gpu/assemble.py $(PTXAS); fi

## c: the C binding, with every warning an error, under the sanitizers of memory and threads, in worlds of 1 to 3 ranks
c: build
	@if ! command -v cc >/dev/null; then echo "C binding: no C compiler, apt-get install gcc" | tee -a build/skips; exit; fi; \
	set -x; flags="-std=c11 -O1 -g -Wall -Wextra -Wconversion -Wno-sign-conversion -Wpedantic -Werror -pthread -fsanitize=address,undefined"; \
	cc $$flags -o build/check-c contrib/c/check.c contrib/c/gorun.c; \
	cc $$flags -o build/check-messages contrib/c/check_messages.c; \
	cc -std=c11 -O2 -Wall -Werror -pthread -o build/example-c contrib/c/example.c contrib/c/gorun.c; \
	if cc -ffast-math -fsyntax-only contrib/c/gorun.c 2>build/fast-math; then echo "gorun.c takes -ffast-math"; exit 1; fi; grep -q 'without -ffast-math' build/fast-math; \
	if command -v c++; then echo '#include "gorun.h"' | c++ -Wall -Wextra -Wpedantic -Werror -fsyntax-only -Icontrib/c -xc++ -; fi; \
	cc $$flags -o build/check-threads contrib/c/check_threads.c contrib/c/gorun.c; \
	cc $${flags/address,undefined/thread} -o build/check-threads-races contrib/c/check_threads.c contrib/c/gorun.c; \
	build/check-messages testdata/rankproto.txt; build/check-c; build/check-threads; \
	for np in 1 2 3; do bin/gorun -np $$np --no-tag-output build/check-c; bin/gorun -np $$np --no-tag-output build/check-threads; \
	bin/gorun -np $$np --no-tag-output setarch -R build/check-threads-races; done; \
	for begun in 0 1 2; do bin/gorun -np 3 --no-tag-output build/check-c $$begun; done; \
	bin/gorun -np 2 --no-tag-output build/example-c

## faces: libgorun's operations of TensorFlow, XLA and MPI, with stand-ins for those, under the sanitizers, and forking, in worlds of 1 to 3 ranks
faces: build
	@if ! command -v cc >/dev/null; then echo "libgorun's faces: no C compiler, apt-get install gcc" | tee -a build/skips; exit; fi; \
	flags="-std=c11 -O1 -g -Wall -Wextra -Wconversion -Wno-sign-conversion -Wpedantic -Werror -pthread -rdynamic"; \
	for face in tensorflow xla mpi; do \
	sources="contrib/c/check_$$face.c contrib/c/gorun.c"; [ $$face != tensorflow ] || sources+=" contrib/c/tensorflow.c"; \
	cc $$flags -fsanitize=address,undefined -o build/check-$$face $$sources -ldl; \
	cc $$flags -fsanitize=thread -o build/check-$$face-races $$sources -ldl; \
	cc $$flags -o build/check-$$face-forks $$sources -ldl; \
	for np in 1 2 3; do bin/gorun -np $$np --no-tag-output build/check-$$face; \
	bin/gorun -np $$np --no-tag-output build/check-$$face-forks; \
	bin/gorun -np $$np --no-tag-output setarch -R build/check-$$face-races; done; done

## arm64: the arithmetic, the golden vectors of the rank protocol, the C binding and jobs of 1 to 3 ranks, for arm64 in an emulator
# On a machine with arm64 make test does that.
QEMU_ARM64 ?= $(shell command -v qemu-aarch64-static qemu-aarch64 | head -1)
CC_ARM64 ?= $(shell command -v aarch64-linux-gnu-gcc)
arm64: build unit-arm64
	@if [ -z "$(QEMU_ARM64)" ]; then exit; fi; \
	if [ -z "$(CC_ARM64)" ]; then echo "arm64: C binding and jobs: no compiler, apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross" | tee -a build/skips; exit; fi; \
	set -x; mkdir -p build/arm64; flags="-static -std=c11 -O2 -Wall -Wextra -Wconversion -Wno-sign-conversion -Wpedantic -Werror -pthread"; \
	$(CC_ARM64) $$flags -o build/arm64/check-c contrib/c/check.c contrib/c/gorun.c; \
	$(CC_ARM64) $$flags -o build/arm64/check-messages contrib/c/check_messages.c; \
	$(CC_ARM64) $$flags -o build/arm64/example-c contrib/c/example.c contrib/c/gorun.c; \
	$(QEMU_ARM64) build/arm64/check-messages testdata/rankproto.txt; $(QEMU_ARM64) build/arm64/check-c; \
	GOARCH=arm64 go build -o build/arm64/gorank ./contrib/examples/gorank; \
	$(call gorun,arm64,build/arm64/gorun); \
	rm -f build/arm64/check-library; if [ -e build/libgorun-arm64.so ]; then \
	cp build/libgorun-arm64.so build/arm64/libgorun.so; \
	$(CC_ARM64) -std=c11 -O2 -Wl,-rpath,$(CURDIR)/build/arm64 -o build/arm64/check-library contrib/c/check.c build/arm64/libgorun.so; \
	else echo "arm64: libgorun: no compiler for it, make zig-ready" | tee -a build/skips; fi; \
	$(call gorun,$$(go env GOARCH),bin/gorun); \
	contrib/tools/arm64.sh $(QEMU_ARM64) | tee -a build/skips

# The part of it that takes seconds.
.PHONY: unit-arm64
unit-arm64: build/report
	@if [ -z "$(QEMU_ARM64)" ]; then [ "$$(go env GOARCH)" = arm64 ] || \
	echo "arm64: no emulator, apt-get install qemu-user-static" | tee -a build/skips; exit; fi; \
	GOARCH=arm64 $(REPORT) -packages "./collective/kernel ./worker/session/codec" go test -json -count=1 -exec $(QEMU_ARM64)

## vsphere: the watcher of vCenter, a Go module of its own, against vCenter's simulator
vsphere: build/report
	cd contrib/vsphere && go vet ./... && go build -o ../../build/gorun-vsphere . && go test -json -timeout=5m ./... | ../../build/report -skips ../../build/skips

## kubernetes: the manifests, and what gorun-kubernetes makes of them, by the types of Kubernetes' API, which a Go module of its own has
kubernetes: build/report
	go run ./contrib/tools/licenses -check -dir contrib/kubernetes contrib/kubernetes/THIRD_PARTY_LICENSES ./gorun-kubernetes
	cd contrib/kubernetes && go vet ./... && go build -o ../../build/gorun-kubernetes ./gorun-kubernetes && go test -json -timeout=5m ./... | ../../build/report

## chart: the Helm chart, a Go module of its own: what it renders, by Helm's own library, its linter and its schema (UPDATE=1 writes what it renders)
chart: build/report
	cd contrib/helm && go vet ./... && UPDATE=$(UPDATE) go test -json -count=1 -timeout=5m ./... | ../../build/report
UPDATE ?=

## test-kubernetes: the manifests and jobs of gorun --kubernetes, applied to the API server of Kubernetes itself, and run by its controllers in pods of a kubelet of the tests; as root
KUBERNETES := $(CACHE)/kubernetes-1.34.2
test-kubernetes: build kubernetes-ready chart
	cd contrib/kubernetes && go build -o ../../build/kubelet ./kubelet && go build -o ../../build/gorun-kubernetes ./gorun-kubernetes
	cd contrib/kubernetes/controlplane && go vet ./... && CONTROLPLANE=$(KUBERNETES) KUBELET=$(CURDIR)/build/kubelet \
	GORUN_E2E_BINARY=$(E2E_BINARY) go test -count=1 -timeout=15m -v ./...

## kubernetes-ready: build etcd and the parts of Kubernetes that make test-kubernetes starts, once; some twenty minutes, in ~/.cache/gorun-ci
OPERATORS := $(addprefix $(KUBERNETES)/,jobset jobset-0.10.1 mpi-operator trainer-controller-manager)
kubernetes-ready: $(addprefix $(KUBERNETES)/,etcd kube-apiserver kube-controller-manager kube-scheduler) $(OPERATORS)
	touch $(KUBERNETES)/ready
$(KUBERNETES)/etcd:
	mkdir -p $(@D)
	cd contrib/kubernetes/controlplane && go build -ldflags='-s -w' -o $@ go.etcd.io/etcd/server/v3
$(KUBERNETES)/kube-%:
	mkdir -p $(@D)
	cd contrib/kubernetes/controlplane && go build -ldflags='-s -w' -o $@ k8s.io/kubernetes/cmd/$(@F)
# Each of the others is built as its own module pins it; contrib/kubernetes/controlplane/apply_test.go names the same versions.
$(KUBERNETES)/jobset: MAIN := sigs.k8s.io/jobset@v0.8.0 .
$(KUBERNETES)/jobset-0.10.1: MAIN := sigs.k8s.io/jobset@v0.10.1 .
$(KUBERNETES)/mpi-operator: MAIN := github.com/kubeflow/mpi-operator@v0.6.0 ./cmd/mpi-operator
$(KUBERNETES)/trainer-controller-manager: MAIN := github.com/kubeflow/trainer/v2@v2.1.0 ./cmd/trainer-controller-manager
$(OPERATORS):
	mkdir -p $(@D)
	dir=$$(go mod download -json $(firstword $(MAIN)) | sed -n 's/.*"Dir": "\(.*\)".*/\1/p') && cd "$$dir" && go build -ldflags='-s -w' -o $@ $(lastword $(MAIN))

## grafana: the board and the alerts, a Go module of its own, by Prometheus on what a job of two ranks serves
grafana: build build/report
	cd contrib/grafana && go vet ./... && go vet -tags picture ./... && GORUN_E2E_BINARY=$(E2E_BINARY) go test -json -count=1 -timeout=5m ./... | ../../build/report -skips ../../build/skips

##@ With other versions and frameworks

## imports: hold every module and name that programs import of Horovod against what gorun has (PROGRAMS=directories of more programs)
PROGRAMS ?=
imports:
	for python in $(PYTHON) $(wildcard $(TENSORFLOWS:%=%/bin/python)); do $$python -B contrib/tools/imports.py $(PROGRAMS) || exit 1; done

## torch2: the tests that need torch 2: FSDP, DTensor, torch.compile, all programs over torch and the stand-ins for a GPU again, and some of torch's own tests (TORCH2=python TORCH2_NP="1 2 3 4")
torch2: build $(if $(filter $(TORCH2_VENV)/%,$(TORCH2)),torch2-ready)
	@$(TORCH2) -c 'import torch; assert int(torch.__version__[0]) > 1' || { echo "torch2: TORCH2=python with torch 2"; exit 1; }
	@for np in $(TORCH2_NP); do for test in $$(grep -l torch contrib/python/tests/torch2/*.py contrib/python/tests/mp/*.py); do \
		echo "$$np $$test"; timeout 300 bin/gorun -np $$np $(TORCH2) $$test >build/torch2.log 2>&1 || { cat build/torch2.log; exit 1; }; \
	done; done
	PYTHONPATH=contrib/python:contrib/python/shim $(TORCH2) -B -m unittest discover -s contrib/python/tests -p 'test_gpu_*.py'
	$(TORCH2) -B contrib/tools/torch_suite.py --part

## torch-suite: torch's own tests of torch.distributed, by ranks of gorun, on its backend and on gloo (TORCH2=python); half an hour
torch-suite: build $(if $(filter $(TORCH2_VENV)/%,$(TORCH2)),torch2-ready)
	for backend in gorun gloo; do $(TORCH2) -B contrib/tools/torch_suite.py --backend $$backend; done

## horovod-tests: Horovod's own parallel tests from a checkout, by ranks of gorun (HOROVOD_TESTS=DIR TESTS_PYTHON=python TESTS_NP="2 4")
TESTS_PYTHON ?= $(PYTHON)
TESTS_NP ?= 2 4
horovod-tests: build
	@[ -n "$(HOROVOD_TESTS)" ] || { echo "horovod-tests: HOROVOD_TESTS=DIR names a checkout of Horovod"; exit 1; }
	@status=0; for np in $(TESTS_NP); do echo "$$np ranks"; \
		$(PYTHON) -B contrib/tools/horovod_suite.py --python $(TESTS_PYTHON) --np $$np $(HOROVOD_TESTS) || status=1; done; exit $$status

## torch2-ready: make the Python with torch 2 that make torch2 uses, by pip; 5 GB in ~/.cache/gorun-ci
torch2-ready: $(TORCH2_VENV)/ready
$(TORCH2_VENV)/ready:
	mkdir -p $(@D)
	flock $(@D) $(SHELL) -euc '[ ! -e $@ ] || exit 0; python3 -m venv $(@D); \
		$(@D)/bin/pip -q install --disable-pip-version-check --no-cache-dir torch==$(TORCH2_VERSION) numpy==2.4.6 expecttest==0.3.0; touch $@'

## pythons: the Python tests with only the standard library, by all Pythons from 3.9 on (PYTHONS=); deprecated features fail
PYTHONS ?= $(wildcard $(foreach minor,9 10 11 12 13 14 15,/usr/bin/python3.$(minor) /usr/local/bin/python3.$(minor) \
	$(HOME)/.pyenv/versions/3.$(minor).*/bin/python))
pythons: build
	@[ -n "$(strip $(PYTHONS))" ] || { echo "pythons: none found, name some with PYTHONS="; exit 1; }
	@for python in $(PYTHONS); do $$python --version; \
		PYTHONPATH=contrib/python:contrib/python/shim PYTHONDONTWRITEBYTECODE=1 $$python -S -W error::DeprecationWarning \
			-W error::SyntaxWarning -m unittest discover -s contrib/python/tests 2>&1 | tail -3; \
	done

##@ Releases

## wheel: make wheels for pip, with the binary inside, for Linux on x86_64 and aarch64
wheel: build zig-ready
	for pair in amd64:x86_64 arm64:aarch64; do \
		$(call gorun,$${pair%:*},build/wheel/gorun); \
		$(PYTHON) contrib/tools/wheel.py --binary build/wheel/gorun --arch $${pair#*:} --out build/wheel; \
	done; rm build/wheel/gorun
	$(call gorun,$$(go env GOARCH),bin/gorun) # again, as what lies in cmd/gorun and build is another machine's now

## release: make every file of a release in build/release: tarballs, wheels, deb, rpm, an OCI image, gorun-kubernetes, a bill of materials and checksums
# The same source and version give the same bytes anywhere, with the same Go and the same zlib of Python.
RELEASE = build/release/$(VERSION)
# The date of the files: the commit's. A source without git needs SOURCE_DATE_EPOCH and REVISION to give the same bytes.
SOURCE_DATE_EPOCH ?= $(or $(shell git log -1 --format=%ct 2>/dev/null),$(shell date +%s))
REVISION ?= $(or $(shell git rev-parse HEAD 2>/dev/null),unknown)
release: zig-ready
	rm -rf build/release
	@mkdir -p build/release/bin $(RELEASE)
	$(call gorun,arm64,build/release/bin/gorun-linux-arm64)
	$(call gorun,amd64,build/release/bin/gorun-linux-amd64)
	@# A launcher on macOS brings its hosts what was just built for them.
	for arch in amd64 arm64; do \
		export GOOS=darwin; $(call gobuild,$$arch,-X main.hostArch=amd64,) -o build/gorun ./cmd/gorun; unset GOOS; \
		$(call pyzip,build/gorun,build/release/bin/gorun-darwin-$$arch,none,); \
	done
	for system in linux-amd64 linux-arm64 darwin-amd64 darwin-arm64; do \
		export GOOS=$${system%-*} GOARCH=$${system#*-}; \
		(cd contrib/kubernetes && go build -trimpath -buildvcs=false -ldflags '-s -w' -o ../../build/release/bin/gorun-kubernetes-$$system ./gorun-kubernetes); \
	done
	for pair in amd64:x86_64 arm64:aarch64; do \
		$(PYTHON) contrib/tools/wheel.py --binary build/release/bin/gorun-linux-$${pair%:*} --arch $${pair#*:} --out $(RELEASE); \
	done
	cd contrib/tools/release && go build -o ../../../build/release/pack .
	build/release/pack -version $(VERSION) -revision $(REVISION) -date $(SOURCE_DATE_EPOCH) -bin build/release/bin -out $(RELEASE)
	$(call gorun,$$(go env GOARCH),bin/gorun) # again, as what lies in cmd/gorun and build is another machine's now
	@cat $(RELEASE)/SHA256SUMS

## release-sign: sign the checksums of a release with the releaser's ssh key (KEY=FILE), for a version that is a tag
release-sign:
	@case '$(VERSION)' in *+*) echo "release-sign: $(VERSION) is no tag: git tag v1.2.3, and make release"; exit 1;; esac
	@[ -n '$(KEY)' ] || { echo "release-sign: name the private key: make release-sign KEY=FILE"; exit 1; }
	ssh-keygen -Y sign -f '$(KEY)' -n gorun $(RELEASE)/SHA256SUMS
KEY ?=

## release-check: install each file of build/release in a fresh root, and run a job of two ranks there (needs root)
release-check: release-ready
	@[ -e $(RELEASE)/SHA256SUMS ] || $(MAKE) release
	SPDX=$(SPDX_VENV)/bin/pyspdxtools contrib/packaging/check.sh $(RELEASE) '$(VERSION)' $(DEBIAN)/root

## release-again: make the release a second time, in another directory with an empty build cache and without a network, and compare (needs root)
release-again:
	@[ -e $(RELEASE)/SHA256SUMS ] || $(MAKE) release
	contrib/packaging/again.sh $(RELEASE) '$(VERSION)' $(REVISION) $(SOURCE_DATE_EPOCH)

## compatibility: try this gorun with the last release: which of their parts work together, and how others refuse each other (BASELINE=REVISION)
# Before the first release the baseline is the commit that raised the control protocol last.
BASELINE ?= $(or $(shell git describe --tags --abbrev=0 --match 'v[0-9]*' HEAD^ 2>/dev/null),4042687d3a4fb1c435d494f8fb213e9722153c4c)
.PHONY: baseline
baseline:
	@echo '$(BASELINE)'
compatibility: build
	@git cat-file -e '$(BASELINE)^{commit}' || { echo "compatibility: this clone lacks $(BASELINE): git fetch --unshallow --tags"; exit 1; }
	@if [ "$$(cat build/baseline/revision 2>/dev/null)" != '$(BASELINE)' ]; then \
		rm -rf build/baseline; mkdir -p build/baseline; \
		git archive '$(BASELINE)' | tar -x -C build/baseline; \
		$(MAKE) -C build/baseline build VERSION='$(or $(patsubst v%,%,$(filter v%,$(BASELINE))),0.0.0+$(BASELINE))'; \
		echo '$(BASELINE)' >build/baseline/revision; \
	fi
	PYTHON=$(PYTHON) contrib/packaging/compatibility.sh bin/gorun build/baseline/bin/gorun build/baseline

## zig-ready: the C compiler that builds libgorun for hosts, by pip; 300 MB in ~/.cache/gorun-ci
zig-ready: $(ZIG)/ready
$(ZIG)/ready:
	mkdir -p $(@D)
	flock $(@D) $(SHELL) -euc '[ ! -e $@ ] || exit 0; python3 -m venv $(@D); \
		$(@D)/bin/pip -q install --disable-pip-version-check --no-cache-dir ziglang==$(ZIG_VERSION); touch $@'

## release-ready: what make release and make release-check need, in ~/.cache/gorun-ci: a Debian with Python, by mmdebstrap, and more; minutes, once
DEBIAN := $(CACHE)/debian-bookworm-1
release-ready: $(DEBIAN)/ready $(SPDX_VENV)/ready $(ZIG)/ready
	cd contrib/tools/release && go mod download
$(DEBIAN)/ready:
	mkdir -p $(@D)
	flock $(@D) $(SHELL) -euc '[ ! -e $@ ] || exit 0; mmdebstrap --quiet --variant=minbase \
		--include=python3-numpy,python3-sklearn,python3-venv,rpm bookworm $(@D)/root.tar; \
		mkdir -p $(@D)/root; tar -C $(@D)/root -xf $(@D)/root.tar; rm $(@D)/root.tar; touch $@'

$(SPDX_VENV)/ready:
	mkdir -p $(@D)
	flock $(@D) $(SHELL) -euc '[ ! -e $@ ] || exit 0; python3 -m venv $(@D); \
		$(@D)/bin/pip -q install --disable-pip-version-check spdx-tools==0.8.5; touch $@'

## rename-module: give the Go module another name everywhere: make rename-module MODULE=example.org/gorun
MODULE ?=
rename-module:
	@[ -n '$(MODULE)' ] || { echo "rename-module: name it: make rename-module MODULE=example.org/gorun"; exit 1; }
	go run ./contrib/tools/rename '$(MODULE)'

## licenses: write THIRD_PARTY_LICENSES in cmd/gorun and contrib/kubernetes; after a change of go.mod, tests fail until it is done
licenses:
	go run ./contrib/tools/licenses cmd/gorun/THIRD_PARTY_LICENSES
	go run ./contrib/tools/licenses -dir contrib/kubernetes contrib/kubernetes/THIRD_PARTY_LICENSES ./gorun-kubernetes

##@ Documentation

## docs: build the documentation site and check it: links, flags, targets and tests that pages name, runnable blocks on lab hosts, each page in Chromium, and the live page of a job
# What this machine cannot do is skipped with the reason, and where CI is set nothing may be.
docs: build docs-site $(AXE)
	$(DOCS)/test_docs.py -q
	$(PAGES)
	@rm -f build/docs-skips; go build -o build/lab ./contrib/lab/cmd/lab
	@$(call skippable,$(DOCS)/runnable.py --lab $(CURDIR)/build/lab --python $(PYTHON))
	@$(call skippable,$(DOCS)/browse.py)
	@$(call skippable,$(DOCS)/live.py --axe $(AXE))
	@if [ -s build/docs-skips ]; then echo "Skipped on this machine:"; sed 's/^/  /' build/docs-skips; [ -z "$(CI)" ]; fi
# Generated pages are as new as the code, and pages name what exists. The generator of the site is not needed.
PAGES = contrib/tools/api.py --check && contrib/tools/names.py --check && $(PYTHON) -B contrib/tools/docs/check.py
# A check that exits with status 3 has printed why this machine cannot make it.
skippable = status=0; $(1) >build/docs-log || status=$$?; if [ $$status = 3 ]; then cat build/docs-log >>build/docs-skips; else cat build/docs-log; exit $$status; fi

## docs-pictures: draw every page of the site as it looks narrow and wide, light and dark, in build/docs-pictures
docs-pictures: docs-site
	$(DOCS)/browse.py --pictures build/docs-pictures

# The rules of accessibility that make docs holds the live page against, by npm.
$(AXE):
	mkdir -p $(@D) && cd $(@D) && npm pack -s axe-core@$(AXE_VERSION) && tar xzf axe-core-$(AXE_VERSION).tgz --strip-components=1 package/axe.min.js

## docs-recorded: run a job on four lab hosts, one with a slow link, and draw the hosts, its live page and the board of its metrics into docs/pictures
docs-recorded: build $(DOCS_VENV)/ready
	go build -o build/lab ./contrib/lab/cmd/lab
	$(DOCS)/recorded.py --lab build/lab --python $(PYTHON)

## docs-site: only build the documentation site: open build/site/index.html, it needs no server
docs-site: $(DOCS_VENV)/ready
	$(DOCS)/build.py

## docs-ready: make the Python with the site's generator that make docs uses, by pip; 300 MB in ~/.cache/gorun-ci
docs-ready: $(DOCS_VENV)/ready
$(DOCS_VENV)/ready:
	mkdir -p $(@D)
	flock $(@D) $(SHELL) -euc '[ ! -e $@ ] || exit 0; python3 -m venv $(@D); \
		$(@D)/bin/pip -q install --disable-pip-version-check --require-hashes -r contrib/tools/docs/requirements.txt; touch $@'

## reference: write the pages of docs/reference, and the help that tests compare with, from the code; a unit test or make docs fails while they are older
reference:
	UPDATE_REFERENCE=1 UPDATE_HELP=1 go test ./cmd/gorun -count=1 -run '^(TestReference|TestHelp)$$'
	contrib/tools/api.py
	contrib/tools/names.py

##@ Faults at random, and simulations

## churn: disturb elastic jobs on this machine at random, without root (MINUTES=3 SEED=0), and check their results
churn: build
	$(PYTHON) contrib/tools/churn.py --minutes $(MINUTES) --seed $(SEED)

## fuzz: each fuzz test for a while (FUZZTIME=10s)
fuzz:
	@grep -rl --include='*_test.go' '^func Fuzz' . | while read -r file; do \
		grep -o '^func Fuzz[A-Za-z0-9_]*' "$$file" | cut -c6- | while read -r name; do \
			echo "$$name in $$(dirname "$$file")"; \
			go test -run='^$$' -fuzz="^$$name\$$" -fuzztime=$(FUZZTIME) "./$$(dirname "$$file")"; \
		done; done

## trials: TRIALS=200 jobs of random kinds under random faults, from SEED on; the first six are part of the tests
TRIALS ?= 200
trials: build
	go test -timeout=2h -count=1 -parallel=4 -v -run TestTrials ./contrib/e2e/elastic -trials $(TRIALS) -trial-seed $(SEED)

## vm: virtual machines with two NUMA nodes: one moves in the middle of a training; ranks, engine and memory are bound; three train over Soft-RoCE, while one moves MOVES times (1) and KILLS queue pairs (30) break, and compare every operation with TCP
MOVES ?= 1
KILLS ?= 30
vm: build
	go test -timeout=90m -count=1 -v -run 'TestVMotion|TestVMBinding|TestVMRDMA' ./contrib/e2e/vm -vm -moves $(MOVES) -kills $(KILLS)

## slurm: jobs of a Slurm cluster on lab hosts: killed processes, time limits, lost nodes, nodes that come and go; some of it is part of the tests
slurm: build
	GORUN_E2E_BINARY=$(E2E_BINARY) go test -timeout=15m -count=1 -parallel=3 -v ./contrib/e2e/slurm

## provision: the role for Ansible and the user data for cloud-init: their linters, and first boots of machines with systemd (needs root and cloud-init)
PROVISION := build/provision
ANSIBLE_VENV := $(CACHE)/ansible-2.19.4
provision: build $(ANSIBLE_VENV)/ready
	@command -v cloud-init >/dev/null || { echo "provision: no cloud-init, apt-get install cloud-init"; exit 1; }
	cloud-init schema -c contrib/cloud-init/user-data
	cd contrib/ansible && PATH=$(ANSIBLE_VENV)/bin:$$PATH ansible-lint -q --offline --profile production; rm -rf .ansible
	rm -rf $(PROVISION); mkdir -p $(PROVISION)/bin
	cp bin/gorun $(PROVISION)/bin/gorun-linux-$$(go env GOARCH)
	cd contrib/tools/release && go build -o $(CURDIR)/$(PROVISION)/pack .
	$(PROVISION)/pack -version $(VERSION) -revision $(REVISION) -date $(SOURCE_DATE_EPOCH) -bin $(PROVISION)/bin -out $(PROVISION) -deb
	ANSIBLE=$(ANSIBLE_VENV) GORUN_DEB=$$(ls $(CURDIR)/$(PROVISION)/*.deb) GORUN_E2E_BINARY=$(E2E_BINARY) \
		go test -timeout=10m -count=1 -v -run 'TestAnsible|TestCloudInit' ./contrib/e2e/cluster

## provision-ready: make the Python with Ansible and its linter, by pip, in ~/.cache/gorun-ci
provision-ready: $(ANSIBLE_VENV)/ready
$(ANSIBLE_VENV)/ready:
	mkdir -p $(@D)
	flock $(@D) $(SHELL) -euc '[ ! -e $@ ] || exit 0; python3 -m venv $(@D); \
		$(@D)/bin/pip -q install --disable-pip-version-check ansible-core==2.19.4 ansible-lint==25.9.2; touch $@'

## soak: simulate 5,000 schedules of faults from SEED on; train for SOAK while everything fails at random by SEED, and through outages of up to 150 s; some of each is part of the tests
SOAK ?= 3m
SEED ?= 0
soak: build
	go test -timeout=24h -count=1 -run 'TestOperations' ./rendezvous/epoch -seeds 5000 -seed $(SEED)
	go test -timeout=24h -count=1 -v -run 'TestSoak' ./contrib/e2e/elastic -long -soak $(SOAK) -soak-seed $(SEED)
	go test -timeout=1h -count=1 -v -run 'TestPaths|TestLongOutages' ./contrib/e2e/faults
	go test -timeout=1h -count=1 -v -run 'TestLongOutages|TestLossAmid' ./contrib/e2e/faults ./contrib/e2e/elastic -long

##@ Measurements

## bench: gorun and its peers side by side on one host, a few sizes; a table in build/bench.md
bench: build
	$(PYTHON) -B contrib/bench/peers.py $(STOCK)

## bench-check: compare bin/gorun with OLD, another binary or a commit, in turns; fails if a row is slower or a daemon larger, and has tables in build/bench-check.md; minutes
OLD ?= HEAD~1
bench-check: build
	$(PYTHON) -B contrib/bench/check.py $(OLD)

## bench-full: every size to 256 MiB, and lab hosts with and without a limit (needs root); an hour
bench-full: build
	$(PYTHON) -B contrib/bench/peers.py --lab 2 4 --mbit 0 1000 --end 268435456 --factor 4 --min-time 0.3 --large $(STOCK)

## bench-launch: launches of 2, 16 and 64 ranks by gorun, Open MPI and MPICH (needs root); a table in build/bench-launch.md
bench-launch: build
	$(PYTHON) -B contrib/bench/launch.py

## bench-slurm: launches of 64 ranks in a Slurm cluster on lab hosts, by gorun over srun, by gorun over ssh and by srun --mpi=pmi2 (needs root)
bench-slurm: build
	GORUN_E2E_BINARY=$(E2E_BINARY) go test -timeout=15m -count=1 -v -run TestBesideSrun ./contrib/e2e/slurm -rounds 7

## bench-rdma-vm: steps of ResNet-50's gradients over TCP and over Soft-RoCE, in one virtual machine to four (needs root and QEMU); half an hour, with nothing beside it
bench-rdma-vm: build
	GORUN_E2E_BINARY=$(E2E_BINARY) go test -timeout=45m -count=1 -v -run TestVMRDMATable ./contrib/e2e/vm -table

## bench-go: the Go benchmarks of the collectives, and of a launch on 1,000 simulated hosts
bench-go:
	go test -run='^$$' -bench=. -benchmem ./collective/...
	go test -run='^$$' -bench=Launch -benchtime=3x ./launcher

## rings: tables of rings on simulated clusters of 4 to 1024 hosts (ours, PCCL's objective, the host list's), and of one or several over two NICs
rings:
	go test -run='^Test(BetterThanOthers|OneRingOrSeveral)$$' -count=1 -v ./topology -table | grep -v -e '^[=-]' -e '^PASS'
	go test -run='^$$' -bench='[Oo]rder' ./topology

##@ Stock Horovod and other frameworks

## compat: Horovod scripts timed under gorun and under stock Horovod; a table in build/compat.md (HVD=a Python with it, COMPAT="--quick --rounds 1")
# Without HVD, pip builds Horovod 0.28.1 with its Gloo in the user's cache. That takes 5 minutes, and needs
# apt-get install cmake g++ libtorch-dev pybind11-dev python3-dev python3-torch python3-venv
HOROVOD_VENV := $(CACHE)/horovod-0.28.1
HVD ?= $(HOROVOD_VENV)/bin/python
COMPAT ?=
# Stock Horovod is a peer of the benchmarks where it is installed.
STOCK = $(if $(wildcard $(HOROVOD_VENV)/ready)$(filter-out $(HOROVOD_VENV)/bin/python,$(HVD)),--horovod $(HVD))
compat: build $(if $(filter $(HOROVOD_VENV)/%,$(HVD)),horovod-ready)
	$(PYTHON) -B contrib/bench/scripts.py --horovod $(HVD) $(COMPAT)

## compat-lab: programs of stock Horovod itself, started by gorun on lab hosts (HVD=a Python with it)
compat-lab: build build/report $(if $(filter $(HOROVOD_VENV)/%,$(HVD)),horovod-ready)
	@failed=; HOROVOD_PYTHON=$(HVD) $(REPORT) -packages ./contrib/e2e/python go test -json -timeout=10m -count=1 -run TestStockHorovod || failed=yes; \
	$(again); [ -z "$$failed" ]

## horovod-ready: build the stock Horovod that make compat uses, by pip, in ~/.cache/gorun-ci
horovod-ready: $(HOROVOD_VENV)/ready
$(HOROVOD_VENV)/ready:
	@/usr/bin/python3 -c 'import os, sys; from importlib.util import find_spec; torch = find_spec("torch"); \
		sys.exit(not torch or not os.path.exists(os.path.dirname(torch.origin) + "/include/torch/extension.h"))' || \
		{ echo "make: error: Horovod is compiled against torch/extension.h, which /usr/bin/python3 does not have"; \
		echo "make: hint: apt-get install python3-torch libtorch-dev"; exit 1; } >&2
	mkdir -p $(@D)
	flock $(@D) $(SHELL) -euc '[ ! -e $@ ] || exit 0; /usr/bin/python3 -m venv --system-site-packages $(@D); \
		HOROVOD_WITH_PYTORCH=1 HOROVOD_WITH_GLOO=1 HOROVOD_WITHOUT_MPI=1 HOROVOD_WITHOUT_TENSORFLOW=1 HOROVOD_WITHOUT_MXNET=1 \
		$(@D)/bin/pip -q install --disable-pip-version-check --no-build-isolation horovod==0.28.1; touch $@'

## frameworks: programs of accelerate, DeepSpeed, JAX, mpi4py, TensorFlow and transformers, in build/frameworks beside Debian's python3-torch, on lab hosts
frameworks: build build/frameworks/ready faces tensorflow jax sanitized
	FRAMEWORKS_PYTHON=$(CURDIR)/build/frameworks/bin/python go test -timeout=10m -count=1 -v -run TestFrameworks ./contrib/e2e/python

## tensorflow: the drop-in for TensorFlow and Keras, by TensorFlow 2.21 and 2.18 with Keras 3, by 2.15 with Keras 2, and by Keras 3 on torch (PARTS="ops keras": some of its jobs; TENSORFLOWS=: some of the Pythons)
tensorflow: build frameworks-ready
	for python in $(TENSORFLOWS); do $(PYTHON) -B contrib/python/tests/tf/run.py $$python/bin/python $(PARTS) || exit 1; done

## sanitized: the operations of TensorFlow and JAX, and a program of JAX alone, with a libgorun that the sanitizers of memory watch
PRELOADED = -x LD_PRELOAD="$(CURDIR)/build/sanitized/dlopen.so $$(cc -print-file-name=libasan.so) $$(cc -print-file-name=libubsan.so)" \
	-x ASAN_OPTIONS=detect_leaks=0:verify_asan_link_order=0 -x UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
sanitized: build $(KERAS3_VENV)/ready
	mkdir -p build/sanitized
	cc -std=c11 -O1 -fPIC -shared -o build/sanitized/dlopen.so contrib/c/check_dlopen.c -ldl
	cc -std=c11 -O1 -g -fno-omit-frame-pointer -fPIC -shared -fvisibility=hidden -fsanitize=address,undefined -Wl,-soname,libgorun.so \
		-o build/sanitized/libgorun.so contrib/c/gorun.c contrib/c/tensorflow.c contrib/c/xla.c contrib/c/mpitrampoline.c -lpthread -ldl
	go run ./contrib/tools/pyzip -version $(VERSION) -library build/sanitized/libgorun.so -program build/gorund-rdma \
		-o build/sanitized/gorun build/gorun contrib/python gorun shim
	for program in tests/tf/test_ops tests/jax/test_operations "--jax-engine gorun tests/jax/programs/mesh"; do \
		flags=$${program% *}; [ "$$flags" != "$$program" ] || flags=; \
		build/sanitized/gorun -np 2 --no-tag-output $$flags $(PRELOADED) -x JAX_PLATFORMS=cpu \
			$(KERAS3_VENV)/bin/python -B contrib/python/$${program##* }.py; \
	done

## frameworks-ready: make the Pythons with TensorFlow, Keras, torch and JAX, by pip; 13 GB in ~/.cache/gorun-ci
frameworks-ready: $(patsubst $(TORCH2_VENV)/ready,$(TORCH2_VENV)/keras,$(TENSORFLOWS:%=%/ready))
$(TORCH2_VENV)/keras: $(TORCH2_VENV)/ready
	flock $(@D) $(@D)/bin/pip -q install --disable-pip-version-check keras==3.15.1 && touch $@
$(KERAS3_VENV)/ready: PACKAGES = tensorflow-cpu==2.21.0 keras==3.15.1 tf_keras==2.21.0 jax==0.10.2 jaxlib==0.10.2 optax==0.2.8
$(KERAS3_OLD_VENV)/ready: PACKAGES = tensorflow-cpu==2.18.1 keras==3.6.0 tf_keras==2.18.0 jax==0.5.3 jaxlib==0.5.3 optax==0.2.8
$(KERAS2_VENV)/ready: PACKAGES = tensorflow-cpu==2.15.1 keras==2.15.0
$(KERAS3_VENV)/ready $(KERAS3_OLD_VENV)/ready $(KERAS2_VENV)/ready:
	mkdir -p $(@D)
	flock $(@D) $(SHELL) -euc '[ ! -e $@ ] || exit 0; python3 -m venv $(@D); \
		$(@D)/bin/pip -q install --disable-pip-version-check $(PACKAGES); touch $@'

## jax: the tests of gorun.jax, and JAX's own programs on the engine, on lab hosts (JAX_VERSIONS=)
JAX_VERSIONS ?= 0.5.3 0.10.2
jax: build $(JAX_VERSIONS:%=$(CACHE)/jax-%/ready)
	for version in $(JAX_VERSIONS); do \
		JAX_PYTHON=$(CACHE)/jax-$$version/bin/python go test -timeout=20m -count=1 -run 'TestJAX' ./contrib/e2e/python || exit 1; \
	done
$(CACHE)/jax-%/ready:
	mkdir -p $(@D)
	flock $(@D) $(SHELL) -euc '[ ! -e $@ ] || exit 0; python3 -m venv $(@D); \
		$(@D)/bin/pip -q install --disable-pip-version-check jax==$* jaxlib==$* optax==0.2.8; touch $@'

## ray: horovod.ray, by actors of a Ray cluster of three nodes on this machine
ray: build $(RAY_VENV)/ready
	$(IN_CLUSTERS) contrib/python/tests/clusters/test_ray.py
IN_CLUSTERS = PYTHONPATH=$(CURDIR)/bin/gorun:$(CURDIR)/bin/gorun/shim GORUN=$(CURDIR)/bin/gorun timeout 900 $(RAY_VENV)/bin/python -B

## spark: horovod.spark, by tasks of three executors on this machine; needs Java (openjdk-17-jre-headless)
spark: build $(RAY_VENV)/ready
	$(IN_CLUSTERS) contrib/python/tests/clusters/test_spark.py

## ray-ready: make the Python with Ray and Spark, by pip; 1 GB in ~/.cache/gorun-ci
ray-ready: $(RAY_VENV)/ready
$(RAY_VENV)/ready:
	mkdir -p $(@D)
	flock $(@D) $(SHELL) -euc '[ ! -e $@ ] || exit 0; python3 -m venv $(@D); \
		$(@D)/bin/pip -q install --disable-pip-version-check ray==2.60.0 grpcio==1.85.3 pyspark==4.3.0 numpy==2.4.6; touch $@'

build/frameworks/ready:
	/usr/bin/python3 -m venv --system-site-packages build/frameworks
	build/frameworks/bin/pip -q install --disable-pip-version-check 'numpy<2' 'scipy<1.13' jax==0.4.30 jaxlib==0.4.30 tensorflow-cpu==2.15.1
	@# Without what they depend on: that would be another torch.
	build/frameworks/bin/pip -q install --disable-pip-version-check --no-build-isolation --no-deps \
		accelerate==0.20.3 deepspeed==0.9.5 hjson packaging psutil py-cpuinfo 'pydantic<2' pyyaml tqdm \
		transformers==4.30.2 tokenizers==0.13.3 huggingface-hub==0.16.4 safetensors==0.3.3 regex filelock fsspec mpi4py==4.1.2 mpich==5.0.2 \
		requests certifi charset-normalizer idna typing_extensions urllib3
	touch $@

##@ The rest

## clean: remove everything that make made
clean:
	rm -rf bin build cmd/gorun/gorund cmd/gorun/.pyzip-*

## help: show this list
help:
	@awk -F ': ' '/^##@ / { printf "\n%s\n", substr($$0, 5) } \
		/^## [a-z0-9-]+: / { line = sprintf("  %-14s", substr($$1, 4)); n = split(substr($$0, length($$1) + 3), words, " "); \
		for (i = 1; i <= n; i++) { if (length(line) + length(words[i]) > 79) { print line; line = sprintf("%16s", "") } line = line " " words[i] } \
		print line }' Makefile

build/report: $(wildcard contrib/tools/report/*.go)
	go build -o $@ ./contrib/tools/report

# An environment of its own, so that the version is fixed and nothing is installed on the machine.
build/ruff-$(RUFF):
	@mkdir -p build
	@if python3 -m venv build/ruff && build/ruff/bin/pip -q install --disable-pip-version-check ruff==$(RUFF); then touch $@; \
	else rm -rf build/ruff; echo "ruff: could not be installed by pip into build/ruff; apt-get install python3-venv, and is there a network?" | tee -a build/skips; fi
