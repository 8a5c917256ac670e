SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -euc
MAKEFLAGS += --warn-undefined-variables --no-print-directory
.DEFAULT_GOAL := build

export CGO_ENABLED := 0
# Each module here is built by itself, whatever workspace the user has.
export GOWORK := off
VERSION ?= $(shell contrib/tools/version.sh)
# What users and other makes may set, and is empty otherwise. A make that has built gorun calls others with BUILT=yes.
$(foreach v,CI BUILT GORUN_RACE E2E_RUN E2E_SKIP FACES UPDATE SUITE BENCH COMPAT PARTS MOVES KILLS SOAK SEED TRIALS FAULTS EVACUATIONS FUZZTIME OLD RACE_FAMILIES TORCH2_NP TESTS_PYTHON TESTS_NP TESTS_HOSTS HOROVOD_TESTS NEEDS RELEASE_KEY CC_ARM64,$(eval $(v) ?=))

# Large downloads and builds are made once per version, outside this tree. X/ready says that X is complete.
CACHE := $(shell echo "$${XDG_CACHE_HOME:-$$HOME/.cache}")/gorun-ci
TORCH2_VENV := $(CACHE)/torch2-2.15.0
KERAS3_VENV := $(CACHE)/tensorflow-2.21.0-jax-0.10.2
RAY_VENV := $(CACHE)/ray-client-2.60.0-spark-4.3.0
SPDX_VENV := $(CACHE)/spdx-tools-0.8.5
ANSIBLE_VENV := $(CACHE)/ansible-2.19.4
DOCS_VENV := $(CACHE)/docs-$(shell sha256sum contrib/tools/docs/requirements.txt | cut -c1-12)
HOROVOD_VENV := $(CACHE)/horovod-0.28.1
# A C compiler for both architectures and old versions of glibc. What is built for others has the library by it.
ZIG := $(CACHE)/zig-0.16.0
DEBIAN := $(CACHE)/debian-bookworm-1
KUBERNETES := $(CACHE)/kubernetes-1.34.2
TORCH2 ?= $(TORCH2_VENV)/bin/python
TENSORFLOWS ?= $(KERAS3_VENV) $(CACHE)/tensorflow-2.18.1-jax-0.5.3 $(CACHE)/tensorflow-2.15.1 $(TORCH2_VENV)
HVD ?= $(HOROVOD_VENV)/bin/python

# The Python with most of the modules that the Python tests and examples use; the tests report missing ones.
PYTHON ?= $(shell for modules in numpy,torch,sklearn numpy,torch numpy sys; do \
	for python in /usr/bin/python3 python3; do \
	$$python -c "import $$modules" 2>/dev/null && echo $$python && exit; done; done; echo python3)

# The pure packages, as cmd/gorun/deps_test.go lists them. They have no goroutines, so the race detector finds nothing.
PURE := $(addprefix ./,$(shell sed -n '/pure *= \[\]string{/s/.*{\(.*\)}/\1/p' cmd/gorun/deps_test.go | grep -o '[a-z0-9/]*[a-z0-9]'))
$(if $(PURE),,$(error no list of pure packages in cmd/gorun/deps_test.go))
# The families of end-to-end tests, those that take longest first. Package speed, which measures rates, runs by itself.
LONG_FAMILIES := elastic launch faults python cluster topology vm
FAMILIES ?= $(LONG_FAMILIES) $(filter-out $(LONG_FAMILIES) speed e2etest testdata,$(notdir $(patsubst %/,%,$(wildcard contrib/e2e/*/))))
# The race detector needs a C compiler, on Linux.
RACE := $(shell command -v gcc clang cc >/dev/null && echo -race)
# Runs go test and reports the results; tests that contrib/tools/report/again.txt lists run again, alone, if they fail beside others.
$(if $(filter 0,$(MAKELEVEL)),$(shell rm -f build/again))
REPORT = build/report -skips build/skips -again build/again
STATICCHECK := go tool -modfile=contrib/tools/lint/go.mod staticcheck -checks all,-ST1003,-ST1016,-ST1023
GOFILES = $(shell find . -name '*.go' -not -path './build/*')

# What a target needs comes before what takes time. What was asked for and is skipped has failed.
need-%: ; @contrib/tools/need.sh $(subst @,:,$(subst +, ,$*))
asked = { tee build/asked; ! grep -B1 -e '--- SKIP' build/asked || { echo "error: this was asked for, and was skipped"; exit 1; }; }

# Every target that a line below documents, and those that make what they need ready.
.PHONY: $(shell sed -n 's/^\#\# \([a-z0-9-]*\):.*/\1/p; s/^\([a-z0-9]*-ready\):.*/\1/p' Makefile)

##@ Every day

## build: make bin/gorun, one static binary that contains the Python binding and the programs for hosts
build:
	@$(if $(BUILT),:,contrib/tools/need.sh go; $(STEPS) 1 'bin/gorun=$(anew)')
gorun = VERSION=$(VERSION) ZIG=$(ZIG) contrib/tools/build.sh
# A build for another machine, or by other flags, leaves its files in cmd/gorun and build.
anew = $(gorun) linux $$(go env GOARCH) bin/gorun
## demo: two hosts made of this machine train a small network with 4 ranks over ssh
demo:
	@contrib/demo/demo.sh

## quick: lint, the unit tests of what changed, and a few jobs on lab hosts: some two minutes once everything is built
quick: build build/report
	@failed=; $(BESIDE) lint jobs="$(MAKE) e2e-families FAMILIES='elastic python launch cluster topology loopback' E2E_FLAGS='-short -vet=off -p=2' E2E_RUN='TestMistakes|TestUploadOnce|TestIPv6|TestLeaseOfOne|TestEncrypt|TestTopo|TestClusterSpare|TestC|TestAlgorithms|TestLosesHost'" $(UNIT) || failed=yes; \
	$(again); [ -z "$$failed" ]

## test: everything that must pass before a change is merged, and a list of skipped tests
# Tests that a machine cannot run are skipped with the reason, those of contrib/e2e/loopback never; where CI is set, only what .ci/run cannot install may be missing.
MAY_SKIP := no GPU that torch can use|no Python with TensorFlow|set HOROVOD_PYTHON|set FRAMEWORKS_PYTHON|set JAX_PYTHON|this kernel has no macvlan|one CPU leaves|may not make control groups|no loop device|before Linux 6.7|this qemu-user has no child subreapers|a part of make vm:|a measurement:|a part of make torch2|a part of make provision:|a part of make test-all
# Tests that run beside each other, the longest first, and those that follow: they measure times, or fill the machine themselves.
TESTS = python $(UNIT) unit-lab lint c module-vsphere module-grafana module-kubernetes
test: build build/report
	@rm -f build/skips
	@failed=; $(BESIDE) $(TESTS) || failed=yes; BUILT=yes $(STEPS) 1 e2e allocations || failed=yes; \
	if [ -s build/skips ]; then echo "Not run on this machine:"; $(by_reason) build/skips | sort; \
	if [ -n "$(CI)" ] && grep -vE '$(MAY_SKIP)' build/skips >build/wrongly-skipped; then \
	echo "May not be skipped where CI is set:"; cat build/wrongly-skipped; failed=yes; fi; fi; \
	$(again); [ -z "$$failed" ]
by_reason = awk '{ r = $$0; sub(/^([^ ]*: |.*\.\.\. skipped )/, "", r); n[r]++; one[r] = $$0 } END { for (r in n) print "  " (n[r] > 1 ? n[r] " tests: " r : one[r]) }'
# A line for each step, and what it prints in build/log. Many tests wait, so three beside each other keep two processors busy.
STEPS = MAKE='$(MAKE)' contrib/tools/steps.sh
BESIDE = BUILT=yes $(STEPS) 3
again = if [ -s build/again ]; then echo "Run a second time, alone, which a test of contrib/tools/report/again.txt, and two more, may be once:"; sort build/again; fi

## test-all: make test and the long tests: waits at the scale of users, every seed and size, random orders, faults for minutes; each night
CLUSTERS = $(if $(wildcard $(RAY_VENV)/ready),ray $(if $(shell command -v java),spark)) \
	$(if $(wildcard $(ANSIBLE_VENV)/ready),$(if $(shell command -v cloud-init),provision)) \
	$(if $(wildcard $(KUBERNETES)/ready),test-kubernetes)
test-all:
	@failed=; $(MAKE) test E2E_SHORT= UNIT_FLAGS="-count=1 -shuffle=on" GORUN_RACE=$(RACE) MATRICES= FACES=yes || failed=yes; \
	contrib/c/check.sh python $(PYTHON) $(VERSION) || failed=yes; for part in module-helm arm64 e2e-race fuzz vm soak $(CLUSTERS); do $(MAKE) $$part SOAK=5m FAULTS=50 EVACUATIONS=25 || failed=yes; done; [ -z "$$failed" ]

##@ Parts of make test

## lint: gofmt, go vet (for macOS too), staticcheck, ruff, shellcheck, what the pages of docs name, and the budgets of lines
RUFF := $(CACHE)/ruff-0.16.9
lint: build
	@$(PAGES)
	@wrong=$$(gofmt -l $(GOFILES)); [ -z "$$wrong" ] || { echo "gofmt: make fix would change $$wrong"; exit 1; }
	go vet ./...
	GOOS=darwin GOARCH=arm64 go vet ./cmd/... ./launcher/...
	GOARCH=arm64 go vet ./collective/kernel
	$(STATICCHECK) ./...
	go test -count=1 ./contrib/tools/house
	@if $(MAKE) -s $(RUFF)/ready; then $(RUFF)/bin/ruff check contrib launcher testdata; else echo "ruff: pip could not install it" | tee -a build/skips; fi
	@if command -v shellcheck >/dev/null; then shellcheck .ci/run contrib/c/check.sh contrib/demo/*.sh contrib/tools/steps.sh contrib/packaging/[ac]*.sh && shellcheck -s sh contrib/packaging/p*.sh && shellcheck -s sh $(filter-out %/steps.sh,$(wildcard contrib/tools/*.sh)) contrib/kubernetes/controlplane/ready.sh contrib/kubernetes/controlplane/testdata/node/*.sh contrib/lab/*.sh contrib/e2e/cluster/testdata/*.sh; \
	else echo "shellcheck: apt-get install shellcheck" | tee -a build/skips; fi
## fix: repair lint errors, where a program can
fix: $(RUFF)/ready
	gofmt -w $(GOFILES)
	$(RUFF)/bin/ruff check --fix contrib launcher testdata

## unit: the Go unit tests, with the race detector where there are goroutines; results of unchanged packages are cached
# These flags must not prevent caching: no -count, no -shuffle.
UNIT_FLAGS ?= -short
# Tests of cmd/gorun start whole jobs, and take ten times as long with the race detector: make test-all sets it to -race.
# Tests that read the sources of the module, and so directories in which make writes: go test cannot cache their results.
SOURCES := TestImports|TestVariablesAreDocumented|TestRules|TestParsersAreFuzzed|TestHintsNameWhatExists|TestMessagesAre.*|TestTroublesAreExplained
# Tests of collective with every type and reduction, which do not change what its goroutines share, and take 15 times as long with it.
MATRICES ?= TestReduce|TestAlgorithms|TestAllreduce|TestReduceScatter|TestCodedSums
UNIT_PACKAGES = $$(go list ./... | grep -v -e /contrib/lab -e /contrib/e2e -e /contrib/tools/house -e /cmd/gorun$$ -e /collective$$ | grep -vxF "$$(go list $(PURE))")
UNIT := unit-race unit-gorun unit-collective unit-pure unit-sources unit-verbs
.PHONY: $(UNIT) unit-lab allocations e2e-families baseline
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
	@$(REPORT) -packages "$(PURE)" go test -json $(UNIT_FLAGS)
unit-gorun: build build/report
	@CGO_ENABLED=$(if $(GORUN_RACE),1,0) $(call unit-of-gorun) $(GORUN_RACE) -timeout=20m -skip '$(SOURCES)'
unit-sources: build/report
	@$(call unit-of-gorun) -run '$(SOURCES)'
# The binding of libibverbs (build tag rdma) against Debian's headers, and against a stand-in for the library.
unit-verbs: build/report
	CGO_ENABLED=0 go vet -tags rdma ./collective/verbs/...
	@$(REPORT) -packages ./collective/verbs/ibverbs go test -json -tags rdma $(UNIT_FLAGS)
unit-of-gorun = GORUN_E2E_BINARY=$(E2E_BINARY) $(REPORT) -packages ./cmd/gorun go test -json $(UNIT_FLAGS)

# The tests that the race detector would distort: under it pools drop their contents, and times differ.
allocations: build/report
	@$(REPORT) -packages "./collective/... ./worker/..." go test -json -run Alloc
	@$(REPORT) -packages "./topology ./launcher/metrics" go test -json -run InTime

unit-lab: build/report
	@CGO_ENABLED=$(if $(RACE),1,0) $(REPORT) -packages ./contrib/lab/... go test -json $(RACE) -count=1

## e2e: the end-to-end tests, of the built binary on lab hosts; they need root, sshd and iproute2 (FAMILIES="launch vm" E2E_SHORT=)
E2E_SHORT ?= -short
E2E_BINARY ?= $(CURDIR)/bin/gorun
e2e: $(if $(BUILT),,need-lab) build build/report
	@failed=; $(MAKE) e2e-families E2E_SKIP='$(ALONE)' || failed=yes; \
	$(if $(filter faults,$(FAMILIES)),$(MAKE) e2e-families FAMILIES=faults E2E_RUN='$(ALONE)' E2E_FLAGS="$(E2E_SHORT) -parallel=2" || failed=yes; \
	$(MAKE) e2e-families FAMILIES=speed || failed=yes;) [ -z "$$failed" ]
# Tests of family faults that need a machine for themselves: no rank may wait for half a second, or lack CPU time.
ALONE := TestAddressChange|TestWhyNamesShortages|TestWhyNamesShortagesOfAHost
E2E_FLAGS ?= $(E2E_SHORT) -p=3 -parallel=4
e2e-families:
	@GORUN_E2E_BINARY=$(E2E_BINARY) $(REPORT) -packages "$(FAMILIES:%=./contrib/e2e/%)" go test -json -count=1 -timeout=40m $(E2E_FLAGS) $(if $(E2E_RUN),-run "^($(E2E_RUN))$$") $(if $(E2E_SKIP),-skip "^($(E2E_SKIP))$$")
## e2e-race: end-to-end tests by a binary with the race detector, launcher and daemons alike (RACE_FAMILIES="cluster elastic")
# Script tests have it too (make unit), but on one machine. A program in which it finds a race exits with status 66.
e2e-race: need-lab+cc@gcc build/report
	@mkdir -p build/race
	CGO_ENABLED=1 GOFLAGS=-race $(gorun) linux $$(go env GOARCH) build/race/gorun
	$(anew)
	@$(MAKE) e2e-families E2E_BINARY=$(CURDIR)/build/race/gorun FAMILIES="$(or $(RACE_FAMILIES),cluster elastic faults)" E2E_FLAGS="-short -p=1 -parallel=4"

## python: the tests of the Python binding by PYTHON, from 3.9 on
python: build
	PYTHONPATH=contrib/python:contrib/python/shim PYTHONDONTWRITEBYTECODE=1 \
		$(PYTHON) -m unittest discover -v -s contrib/python/tests 2>&1 | tee build/python.log | grep -v '\.\.\. ok$$'
	@{ grep -o '^test.*\.\.\. skipped.*' build/python.log || :; } >>build/skips
	cd / && PYTHONPATH=$(CURDIR)/bin/gorun:$(CURDIR)/bin/gorun/shim $(PYTHON) -c 'import gorun, horovod'
## pythons: make python by each Python from 3.9 on, with the standard library alone; deprecated features fail (PYTHONS=)
PYTHONS ?= $(wildcard $(foreach n,9 10 11 12 13 14 15,/usr/bin/python3.$(n) $(HOME)/.pyenv/versions/3.$(n).*/bin/python))
pythons: build
	for python in $(PYTHONS); do echo $$python; $(MAKE) python BUILT=yes PYTHON="$$python -W error::DeprecationWarning -W error::SyntaxWarning" || exit 1; done
## c: the C binding under the sanitizers of memory and threads; FACES=yes: libgorun's operations of TensorFlow, XLA and MPI too
c: build
	contrib/c/check.sh binding
	$(if $(FACES),contrib/c/check.sh faces)
## arm64: the arithmetic, the golden vectors of the rank protocol, the C binding and jobs of 1 to 3 ranks, for arm64 in an emulator
QEMU_ARM64 ?= $(shell command -v qemu-aarch64-static qemu-aarch64 | head -1)
arm64: $(if $(QEMU_ARM64),,need-qemu-aarch64-static@qemu-user-static) $(if $(CC_ARM64),,need-aarch64-linux-gnu-gcc@gcc-aarch64-linux-gnu) build
	$(gorun) linux arm64 build/arm64/gorun; $(anew); contrib/tools/arm64.sh $(QEMU_ARM64) | tee -a build/skips
## modules: the Go modules of their own in contrib: the watcher of vCenter against its simulator, the manifests and gorun-kubernetes, Grafana's board and alerts by Prometheus, the Helm chart (MODULES=vsphere; UPDATE=1 writes what the chart renders)
MODULES ?= vsphere kubernetes grafana helm
modules: $(MODULES:%=module-%)
module-%: build build/report
	$(if $(filter kubernetes,$*),go run ./contrib/tools/licenses -check -dir contrib/kubernetes contrib/kubernetes/THIRD_PARTY_LICENSES ./gorun-kubernetes)
	cd contrib/$* && go vet ./... && UPDATE=$(UPDATE) GORUN_E2E_BINARY=$(E2E_BINARY) ../../build/report -skips ../../build/skips -packages ./... go test -json -count=1 -timeout=5m

## test-kubernetes: the manifests and jobs of gorun --kubernetes, applied to the API server of Kubernetes itself, and run by its controllers and its kubelet in pods of this machine; as root
test-kubernetes: need-lab build kubernetes-ready module-helm
	cd contrib/kubernetes && go build -o ../../build/gorun-kubernetes ./gorun-kubernetes
	cd contrib/kubernetes/controlplane && go vet ./... && CONTROLPLANE=$(KUBERNETES) GORUN_KUBERNETES=$(CURDIR)/build \
	GORUN_E2E_BINARY=$(E2E_BINARY) go test -count=1 -timeout=15m -v ./...

##@ Releases

## wheel: make wheels for pip, with the binary inside, for Linux on x86_64 and aarch64
wheel: zig-ready
	@mkdir -p build/wheel
	$(call wheels,build,build/wheel)
	$(anew)
# gorun for Linux into a directory, and its wheels into another one. The one for amd64 is the last, which macOS embeds.
wheels = for pair in arm64:aarch64 amd64:x86_64; do binary=$(1)/gorun-linux-$${pair%:*}; $(gorun) linux $${pair%:*} $$binary; \
	$(PYTHON) contrib/tools/wheel.py --binary $$binary --arch $${pair\#*:} --out $(2); done
## release: make every file of a release in build/release: tarballs, wheels, deb, rpm, an OCI image, gorun-kubernetes, notes, a bill of materials, provenance and checksums (VERSION=1.2.3 of a clean commit; RELEASE_KEY=FILE signs)
# The same source and version give the same bytes anywhere, with the same Go and the same zlib of Python.
RELEASE = build/release/$(VERSION)
# The date of the files: the commit's. A source without git needs SOURCE_DATE_EPOCH and REVISION to give the same bytes.
SOURCE_DATE_EPOCH ?= $(or $(shell git log -1 --format=%ct 2>/dev/null),$(shell date +%s))
REVISION ?= $(or $(shell git rev-parse HEAD 2>/dev/null),unknown)
packed = build/pack -version $(VERSION) -revision $(REVISION) -date $(SOURCE_DATE_EPOCH) -bin build/release/bin -out $(RELEASE) $(RELEASE_KEY:%=-key %)
release:
	@contrib/tools/need.sh go $(if $(RELEASE_KEY),ssh-keygen:openssh-client) && go -C contrib/tools/release build -o ../../../build/pack .
	@$(if $(filter file,$(origin VERSION)),:,$(packed) -cut) && $(MAKE) zig-ready
	rm -rf build/release && mkdir -p build/release/bin $(RELEASE)
	$(call wheels,build/release/bin,$(RELEASE))
	for arch in amd64 arm64; do $(gorun) darwin $$arch build/release/bin/gorun-darwin-$$arch; done
	for system in linux-amd64 linux-arm64 darwin-amd64 darwin-arm64; do \
		GOOS=$${system%-*} GOARCH=$${system#*-} go -C contrib/kubernetes build -trimpath -buildvcs=false -ldflags '-s -w' \
			-o ../../build/release/bin/gorun-kubernetes-$$system ./gorun-kubernetes; done
	@$(anew) && $(packed)
## release-check: install each file of build/release in a fresh root, and run a job of two ranks there (needs root)
$(RELEASE)/SHA256SUMS:
	$(MAKE) release
release-check: need-lab+cc@gcc release-ready $(RELEASE)/SHA256SUMS
	(cd contrib/tools/release && go vet . && go test -count=1 .) && SPDX=$(SPDX_VENV)/bin/pyspdxtools contrib/packaging/check.sh $(RELEASE) '$(VERSION)' $(DEBIAN)/root
## release-again: make the release a second time, in another directory with an empty build cache and without a network, and compare (needs root)
release-again: need-lab $(RELEASE)/SHA256SUMS
	contrib/packaging/again.sh $(RELEASE) '$(VERSION)' $(REVISION) $(SOURCE_DATE_EPOCH)

## compatibility: try this gorun with the last release: which of their parts work together, and how others refuse each other (BASELINE=REVISION)
# Before the first release the baseline is the commit that raised the control protocol last.
BASELINE ?= $(or $(shell git describe --tags --abbrev=0 --match 'v[0-9]*' HEAD^ 2>/dev/null),4042687d3a4fb1c435d494f8fb213e9722153c4c)
baseline: ; @echo '$(BASELINE)'
compatibility: build
	PYTHON=$(PYTHON) contrib/packaging/compatibility.sh bin/gorun '$(BASELINE)'

##@ Documentation

## docs: build the documentation site and check it: links, flags, targets and tests that pages name, runnable blocks on lab hosts, and the live page of a job in Chromium
DOCS := $(DOCS_VENV)/bin/python -B contrib/tools/docs
AXE := $(CACHE)/axe-core-4.14.1/axe.min.js
docs: need-lab build docs-site $(AXE)
	$(DOCS)/test_docs.py -q
	go build -o build/lab ./contrib/lab/cmd/lab
	$(DOCS)/runnable.py --lab $(CURDIR)/build/lab --python $(PYTHON)
	$(DOCS)/test_live.py --axe $(AXE)
# Generated pages are as new as the code, and pages name what exists. The generator of the site is not needed.
PAGES = contrib/tools/api.py --check && $(PYTHON) -B contrib/tools/docs/check.py
## docs-site: only build the documentation site: open build/site/index.html, it needs no server
docs-site: docs-ready ; $(DOCS)/build.py
## reference: write the pages of docs/reference, and the help that tests compare with, from the code; a unit test or make docs fails while they are older
reference:
	UPDATE_REFERENCE=1 UPDATE_HELP=1 go test ./cmd/gorun -count=1 -run '^(TestReference|TestHelp)$$'
	contrib/tools/api.py

##@ Faults at random, and simulations

## fuzz: each fuzz test for a while (FUZZTIME=10s)
fuzz:
	@grep -ro --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' . | sed 's,/[^/]*:func , ,' | while read -r package name; do \
		echo "$$name in $$package"; go test -run='^$$' -fuzz="^$$name\$$" -fuzztime=$(or $(FUZZTIME),10s) $$package; done
## soak: simulate 5,000 schedules of faults from SEED on; train for SOAK while everything fails at random by SEED, and through outages of up to 150 s; run TRIALS=200 jobs of random kinds under random faults; lose ranks FAULTS=1000 times, drain hosts EVACUATIONS=500 times, and check each step; some of each is part of the tests
soak: need-lab build
	go test -timeout=24h -count=1 -run 'TestOperations' ./rendezvous/epoch -seeds 5000 -seed $(or $(SEED),0)
	go test -timeout=24h -count=1 -v -run 'TestSoak' ./contrib/e2e/elastic -long -soak $(or $(SOAK),3m) -soak-seed $(or $(SEED),0)
	go test -timeout=1h -count=1 -v -run 'TestPaths|TestLongOutages' ./contrib/e2e/faults
	go test -timeout=1h -count=1 -v -run 'TestLongOutages|TestLossAmid' ./contrib/e2e/faults ./contrib/e2e/elastic -long
	go test -timeout=24h -count=1 -parallel=4 -v -run 'TestTrials|TestNoStepLost|TestEvacuations' ./contrib/e2e/elastic -trials $(or $(TRIALS),200) -trial-seed $(or $(SEED),0) -step-faults $(or $(FAULTS),1000) -step-seed $(or $(SEED),1) -evacuations $(or $(EVACUATIONS),500)
## vm: virtual machines with two NUMA nodes: one moves in the middle of a training; ranks, engine and memory are bound; three train over Soft-RoCE, while one moves MOVES times (1) and KILLS queue pairs (30) break, and compare every operation with TCP; three lose ranks and daemons
vm: need-vm build
	go test -timeout=90m -count=1 -v -run 'TestVMotion|TestVMBinding|TestVMRDMA|TestVMSteps' ./contrib/e2e/vm -vm -moves $(or $(MOVES),1) -kills $(or $(KILLS),30) | $(asked)

## provision: the role for Ansible and the user data for cloud-init: their linters, and first boots of machines with systemd (needs root and cloud-init)
provision: need-lab+cloud-init+systemctl@systemd build provision-ready $(RELEASE)/SHA256SUMS
	cloud-init schema -c contrib/cloud-init/user-data
	cd contrib/ansible && PATH=$(ANSIBLE_VENV)/bin:$$PATH ansible-lint -q --offline --profile production; rm -rf .ansible
	ANSIBLE=$(ANSIBLE_VENV) GORUN_DEB=$$(ls $(CURDIR)/$(RELEASE)/gorun_*_$$(go env GOARCH).deb) GORUN_E2E_BINARY=$(E2E_BINARY) \
		go test -timeout=10m -count=1 -v -run 'TestAnsible|TestCloudInit' ./contrib/e2e/cluster | $(asked)

##@ Measurements

## bench: gorun and its peers side by side on one host, a few sizes; a table in build/bench.md (BENCH="--lab 2 4": options of contrib/bench/peers.py)
STOCK = $(if $(wildcard $(HOROVOD_VENV)/ready)$(filter-out $(HOROVOD_VENV)/bin/python,$(HVD)),--horovod $(HVD))
bench: build
	$(PYTHON) -B contrib/bench/peers.py $(BENCH) $(STOCK)
## bench-check: compare bin/gorun with OLD, another binary or a commit, in turns; fails if a row is slower or a daemon larger, and has tables in build/bench-check.md; minutes
bench-check: build
	$(PYTHON) -B contrib/bench/check.py $(or $(OLD),HEAD~1)
## bench-launch: launches of 2, 16 and 64 ranks by gorun, Open MPI and MPICH (needs root); a table in build/bench-launch.md
bench-launch: need-lab build
	$(PYTHON) -B contrib/bench/launch.py
## rings: tables of rings on simulated clusters of 4 to 1024 hosts (ours, PCCL's objective, the host list's)
rings:
	go test -run='^TestBetterThanOthers$$' -count=1 -v ./topology -table | grep -v -e '^[=-]' -e '^PASS'
	go test -run='^$$' -bench='[Oo]rder' ./topology

##@ With torch 2, stock Horovod and other frameworks
## torch2: the tests that need torch 2: FSDP, DTensor, torch.compile, all programs over torch and the stand-ins for a GPU again, and some of torch's own tests; all of those with SUITE="gorun gloo", half an hour (TORCH2=python TORCH2_NP="1 2 3 4")
torch2: build $(if $(filter $(TORCH2_VENV)/%,$(TORCH2)),torch2-ready)
	@for np in $(or $(TORCH2_NP),1 2 3 4); do for test in $$(grep -l torch contrib/python/tests/torch2/*.py contrib/python/tests/mp/*.py); do \
		echo "$$np $$test"; timeout 300 bin/gorun -np $$np $(TORCH2) $$test >build/torch2.log 2>&1 || { cat build/torch2.log; exit 1; }; \
	done; done
	PYTHONPATH=contrib/python:contrib/python/shim $(TORCH2) -B -m unittest discover -s contrib/python/tests -p 'test_gpu_*.py'
	for which in $(or $(SUITE:%=--backend=%),--part); do $(TORCH2) -B contrib/tools/torch_suite.py $$which || exit 1; done
## compat: Horovod scripts timed under gorun and under stock Horovod, a table in build/compat.md, and programs of stock Horovod itself, started by gorun on lab hosts (HVD=a Python with it, COMPAT="--quick --rounds 1")
compat: need-lab build build/report $(if $(filter $(HOROVOD_VENV)/%,$(HVD)),horovod-ready)
	$(PYTHON) -B contrib/bench/scripts.py --horovod $(HVD) $(COMPAT)
	@HOROVOD_PYTHON=$(HVD) $(REPORT) -packages ./contrib/e2e/python go test -json -timeout=10m -count=1 -run TestStockHorovod

## horovod-tests: Horovod's own parallel tests from a checkout, by ranks of gorun (HOROVOD_TESTS=DIR TESTS_PYTHON=python TESTS_NP="2 4" TESTS_HOSTS=host1:2,host2:2)
horovod-tests: build
	$(PYTHON) -B contrib/tools/horovod_suite.py --python $(or $(TESTS_PYTHON),$(PYTHON)) --np $(or $(TESTS_NP),2 4) $(TESTS_HOSTS:%=-H %) -- $(or $(HOROVOD_TESTS),$(error HOROVOD_TESTS=DIR names a checkout of Horovod))

## frameworks: programs of accelerate, DeepSpeed, JAX, mpi4py, TensorFlow and transformers, in build/frameworks beside Debian's python3-torch, on lab hosts
frameworks: need-lab build build/frameworks/ready tensorflow jax
	contrib/c/check.sh faces
	contrib/c/check.sh sanitized $(KERAS3_VENV)/bin/python $(VERSION)
	FRAMEWORKS_PYTHON=$(CURDIR)/build/frameworks/bin/python go test -timeout=10m -count=1 -v -run TestFrameworks ./contrib/e2e/python | $(asked)
## tensorflow: the drop-in for TensorFlow and Keras, by TensorFlow 2.21 and 2.18 with Keras 3, by 2.15 with Keras 2, and by Keras 3 on torch (PARTS="ops keras": some of its jobs; TENSORFLOWS=: some of the Pythons)
tensorflow: build frameworks-ready
	for python in $(TENSORFLOWS:%=%/bin/python); do \
		$(PYTHON) -B contrib/python/tests/tf/run.py $$python $(PARTS) || exit 1; done
## jax: the tests of gorun.jax, and JAX's own programs on the engine, on lab hosts (JAX_VENVS=)
JAX_VENVS ?= $(CACHE)/jax-0.5.3 $(CACHE)/jax-0.10.2
jax: need-lab build $(JAX_VENVS:%=%/ready)
	for venv in $(JAX_VENVS); do JAX_PYTHON=$$venv/bin/python go test -timeout=20m -count=1 -v -run TestJAX ./contrib/e2e/python | $(asked) || exit 1; done
## ray: horovod.ray, by actors of a Ray cluster of three nodes on this machine
## spark: horovod.spark, by tasks of three executors on this machine; needs Java (openjdk-17-jre-headless)
ray spark: build ray-ready
	contrib/tools/need.sh $(if $(filter spark,$@),java:openjdk-17-jre-headless) && PYTHONPATH=$(CURDIR)/bin/gorun:$(CURDIR)/bin/gorun/shim GORUN=$(CURDIR)/bin/gorun \
		timeout 900 $(RAY_VENV)/bin/python -B contrib/python/tests/clusters/test_$@.py

##@ The rest

## docs-ready: have what make docs needs in ~/.cache/gorun-ci, by pip and npm; and torch2-ready (5 GB), frameworks-ready (13 GB), ray-ready (1 GB), horovod-ready, zig-ready (for builds for other machines), release-ready, provision-ready and kubernetes-ready (twenty minutes)
docs-ready: $(DOCS_VENV)/ready
torch2-ready: $(TORCH2_VENV)/ready
frameworks-ready: $(patsubst $(TORCH2_VENV)/ready,$(TORCH2_VENV)/keras,$(TENSORFLOWS:%=%/ready))
ray-ready: $(RAY_VENV)/ready
horovod-ready: $(HOROVOD_VENV)/ready
zig-ready: $(ZIG)/ready
release-ready: need-go+venv $(DEBIAN)/ready $(SPDX_VENV)/ready zig-ready
	cd contrib/tools/release && go mod download
provision-ready: $(ANSIBLE_VENV)/ready
kubernetes-ready:
	contrib/tools/need.sh go containerd:containerd runc:runc /usr/lib/cni/bridge:containernetworking-plugins && contrib/kubernetes/controlplane/ready.sh $(KUBERNETES)

# A Python with the packages that contrib/tools/requirements names.
VENV = python3 -m venv
PIP = bin/pip -q install --disable-pip-version-check --no-cache-dir
REQUIREMENTS = -r contrib/tools/requirements/$(notdir $(@D)).txt
$(CACHE)/%/ready:
	@contrib/tools/need.sh venv $(NEEDS) && mkdir -p $(@D)
	@$(STEPS) 1 "$(notdir $(@D))=flock $(@D) $(SHELL) -euc '[ ! -e $@ ] || exit 0; $(VENV) $(@D); $(@D)/$(PIP) $(REQUIREMENTS); touch $@'"
$(DOCS_VENV)/ready: REQUIREMENTS = --require-hashes -r contrib/tools/docs/requirements.txt
# Stock Horovod is compiled with its Gloo for Debian's torch, in 5 minutes.
$(HOROVOD_VENV)/ready: VENV = export HOROVOD_WITH_PYTORCH=1 HOROVOD_WITH_GLOO=1 HOROVOD_WITHOUT_MPI=1 HOROVOD_WITHOUT_TENSORFLOW=1 HOROVOD_WITHOUT_MXNET=1; /usr/bin/python3 -m venv --system-site-packages
$(HOROVOD_VENV)/ready: NEEDS = cmake c++:g++
$(HOROVOD_VENV)/ready: PIP += --no-build-isolation
$(TORCH2_VENV)/keras: $(TORCH2_VENV)/ready
	flock $(@D) $(@D)/$(PIP) keras==3.15.1
	touch $@
build/frameworks/ready:
	contrib/tools/need.sh venv && /usr/bin/python3 -m venv --system-site-packages $(@D)
	$(@D)/$(PIP) -r contrib/tools/requirements/frameworks.txt
	$(@D)/$(PIP) --no-build-isolation --no-deps -r contrib/tools/requirements/frameworks-alone.txt
	touch $@
$(AXE):
	contrib/tools/need.sh npm && mkdir -p $(@D) && cd $(@D) && npm pack -s axe-core@4.14.1 && tar xzf axe-core-4.14.1.tgz --strip-components=1 package/axe.min.js
$(DEBIAN)/ready:
	@contrib/tools/need.sh root mmdebstrap && mkdir -p $(@D)/root
	@$(STEPS) 1 "$(notdir $(@D))=flock $(@D) $(SHELL) -euc '[ ! -e $@ ] || exit 0; mmdebstrap --quiet --variant=minbase \
		--include=python3-numpy,python3-sklearn,python3-venv,rpm bookworm - | tar -C $(@D)/root -x; touch $@'"

## clean: remove everything that make made
clean:
	rm -rf bin build cmd/gorun/gorund cmd/gorun/.pyzip-*
## help: show this list
help:
	@sed -n 's/^##@ /\n/p; s/^## /  /p' Makefile

build/report: $(wildcard contrib/tools/report/*.go); @go build -o $@ ./contrib/tools/report
