package vm

import (
	"context"
	"flag"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"gorun/contrib/lab/vm"
	"gorun/contrib/must"
)

var vmBinding = flag.Bool("vm", false, "whether TestVMBinding and TestVMRDMA do anything")

var placeLine = regexp.MustCompile(`rank (\d) local (\d) cpus (\S+) policy (\S+) pages (\d+) (\d+)`)

var threadLine = regexp.MustCompile(`threads of rank (\d): ([0-9 ,-]+)`)

var bufferLine = regexp.MustCompile(`buffers of rank (\d): ([0-9+? ]*)`)

// TestVMBinding binds ranks on machines with two NUMA nodes and a NIC on each, and asks the kernel where they are: each
// rank on the CPU of its node, with its memory there, and of the daemon's threads those of a network's streams on the
// CPU beside its NIC. What these streams read into lies there too.
func TestVMBinding(t *testing.T) {
	if !*vmBinding {
		t.Skip("a part of make vm: emulated machines take a minute or two for it")
	}
	binary, root := vmProgram(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	l := guests(ctx, t, root, vm.Options{Guests: 2})
	program := must.Read(t, filepath.Join(root, "testdata/vm/bound.py"))
	cmd := l.Command(ctx, binary, "-np", "4", "-H", "vm1:2,vm2:2", "--bind-to", "numa", "--report-bindings", "--network-interfaces", "ens192,ens224", "--algorithm", "ring",
		"--start-timeout", "4m", "--lease", "5m", "--wdir", "/", "python3", "-c", string(program))
	text, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	places := placeLine.FindAllStringSubmatch(string(text), -1)
	if len(places) != 4 {
		t.Fatalf("%d ranks said where they are\n%s", len(places), text)
	}
	at := map[string]map[string]bool{"0": {}, "1": {}} // CPUs by host: ranks 0 and 1 are on the first
	for _, p := range places {
		rank, _ := strconv.Atoi(p[1])
		host := strconv.Itoa(rank / 2)
		node, err := strconv.Atoi(p[3]) // each node has one CPU, of its own number
		if err != nil || node > 1 || at[host][p[3]] {
			t.Errorf("rank %s runs on CPUs %s, where another one does, or on both nodes\n%s", p[1], p[3], text)
			continue
		}
		at[host][p[3]] = true
		if !strings.HasPrefix(p[4], "prefer") || !strings.HasSuffix(p[4], ":"+p[3]) {
			t.Errorf("rank %s on node %d takes memory by the policy %s", p[1], node, p[4])
		}
		here, _ := strconv.Atoi(p[5+node])
		there, _ := strconv.Atoi(p[6-node])
		if here < 1024 || there > here/8 { // of 2,048 pages; where a node is full they come from the other
			t.Errorf("rank %s on node %d has %d pages there and %d on the other", p[1], node, here, there)
		}
	}
	threads := threadLine.FindAllStringSubmatch(string(text), -1)
	if len(threads) != 4 {
		t.Fatalf("%d ranks looked at their daemon\n%s", len(threads), text)
	}
	for _, line := range threads {
		on := tally(line[2])
		// Streams of the one network, of the other, and all else, which may run beside both NICs.
		if on["0"] == 0 || on["1"] == 0 || on["0-1"] == 0 {
			t.Errorf("the daemon of rank %s has threads on CPUs %s", line[1], line[2])
		}
	}
	buffers := bufferLine.FindAllStringSubmatch(string(text), -1)
	if len(buffers) != 4 {
		t.Fatalf("%d ranks looked at their daemon's memory\n%s", len(buffers), text)
	}
	for _, line := range buffers {
		on := tally(line[2])
		// At least one stream in each network, with two of three in one of them; none on both nodes.
		if on["0"] == 0 || on["1"] == 0 || on["0"]+on["1"] < 3 || len(on) != 2 {
			t.Errorf("the daemon of rank %s reads into buffers on nodes %s", line[1], line[2])
		}
	}
	for _, want := range []string{`vm1: ranks are bound to numa`, `vm2: .*NUMA node 1`, `vm1: streams in 10\.77\.0\.0/24 run on CPUs 0`, `vm2: streams in 10\.78\.0\.0/24 run on CPUs 1`} {
		if !regexp.MustCompile(want).Match(text) {
			t.Errorf("no match for %s in\n%s", want, text)
		}
	}
	if t.Failed() {
		t.Logf("%s", text)
	}
}

// tally counts words.
func tally(words string) map[string]int {
	count := map[string]int{}
	for word := range strings.FieldsSeq(words) {
		count[word]++
	}
	return count
}
