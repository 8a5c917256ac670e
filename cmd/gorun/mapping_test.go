//go:build linux

package main

import (
	"context"
	"fmt"
	"math/big"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"gorun/contrib/e2e/e2etest"
	"gorun/contrib/must"
)

const openMPI = "mpirun.openmpi"

// peer runs a program of the MPIs until it has said as often as that what is looked for. Open MPI's says it even though
// it fails later, and Hydra fails by itself now and then on a busy machine (assert (!closed) failed).
func peer(t *testing.T, what *regexp.Regexp, times int, argv ...string) [][]string {
	t.Helper()
	if _, err := exec.LookPath(argv[0]); err != nil {
		t.Skipf("install openmpi-bin and mpich: no %s", argv[0])
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for attempt := 1; ; attempt++ {
		out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput()
		found := what.FindAllStringSubmatch(string(out), -1)
		if len(found) == times {
			return found
		}
		if attempt == 5 || ctx.Err() != nil {
			t.Fatalf("%q: %v\n%s", argv, err, out)
		}
	}
}

// own is peer for a program of ours, which has to do well the first time.
func own(t *testing.T, what *regexp.Regexp, times int, argv ...string) [][]string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput()
	found := what.FindAllStringSubmatch(string(out), -1)
	if err != nil || len(found) != times {
		t.Fatalf("%q: %v, %d times what is looked for instead of %d\n%s", argv, err, len(found), times, out)
	}
	return found
}

var mapLine = regexp.MustCompile(`Data for node: (\S+)|Process rank: (\d+)`)

// TestMapsAsMPI: ranks go to the hosts to which Open MPI's mpirun sends them, for every way to deal and number them
// that both know. Hydra knows one way.
func TestMapsAsMPI(t *testing.T) {
	t.Parallel()
	// ours also shows how many hosts and ranks there are: Open MPI shows each in a line.
	ours := func(flags []string) (where string, lines int) {
		t.Helper()
		var hosts []string
		err := parse(t, append(append([]string{"gorun"}, flags...), "true"), func(o *jobFlags) {
			p, err := place(o)
			if err != nil {
				t.Errorf("%q: %v", flags, err)
			}
			for _, h := range p.Hosts {
				hosts = append(hosts, fmt.Sprint(h.Name, h.Ranks))
			}
			lines = len(p.Hosts) + len(p.Ranks)
		})
		if err != nil {
			t.Errorf("%q: %v", flags, err)
		}
		return strings.Join(hosts, " "), lines
	}
	where := []string{"-np", "4", "-H", "a:2,b:2"}
	var ways [][]string
	for _, by := range []string{"slot", "node", "core", "numa", "l3cache", "ppr:2:node", "node:PE=1"} {
		ways = append(ways, append(slices.Clone(where), "--map-by", by))
	}
	for _, by := range []string{"slot", "node", "socket"} {
		ways = append(ways, append(slices.Clone(where), "--rank-by", by, "--map-by", "slot"))
	}
	ways = append(ways, append(slices.Clone(where), "--rank-by", "slot", "--map-by", "node"),
		[]string{"-np", "2", "-H", "a:2,b:2", "--map-by", "ppr:1:node"}, []string{"-np", "3", "-H", "a:8,b:8", "--map-by", "ppr:2:node"},
		[]string{"-np", "3", "-H", "a:2,b:2", "--map-by", "core"}, []string{"-np", "4", "-H", "a:1,b:1", "--map-by", "slot:OVERSUBSCRIBE"},
		[]string{"-np", "3", "-H", "a:3,b:1,c:2", "-npernode", "1"})
	for _, flags := range ways {
		want, lines := ours(flags)
		found := peer(t, mapLine, lines, append(append([]string{openMPI, "--allow-run-as-root", "--do-not-launch", "--display-map"}, flags...), "true")...)
		hosts := map[string][]string{}
		var order []string
		for _, m := range found {
			if m[1] != "" {
				order = append(order, m[1])
			} else if len(order) > 0 {
				last := order[len(order)-1]
				hosts[last] = append(hosts[last], m[2])
			}
		}
		var theirs []string
		for _, h := range order {
			theirs = append(theirs, fmt.Sprint(h, hosts[h]))
		}
		if theirs := strings.Join(theirs, " "); theirs != want {
			t.Errorf("%q: %s, but Open MPI: %s", flags, want, theirs)
		}
	}

	// Each rank prints its number in its host.
	var theirs []string
	for _, m := range peer(t, regexp.MustCompile(`(?m)^\d:\d$`), 5, "mpiexec.hydra", "-launcher", "fork", "-n", "5", "-hosts", "a:3,b:1,c:2", "sh", "-c", "echo $PMI_RANK:$MPI_LOCALRANKID") {
		theirs = append(theirs, m[0])
	}
	slices.Sort(theirs)
	if got, _ := ours([]string{"-n", "5", "-hosts", "a:3,b:1,c:2"}); got != "a[0 1 2] b[3] c[4]" || strings.Join(theirs, " ") != "0:0 1:1 2:2 3:0 4:0" {
		t.Errorf("%s; Hydra: %s", got, theirs)
	}
}

var allowedCPUs = regexp.MustCompile(`Cpus_allowed:\s*(\S+)`)

// TestBindsAsMPI: two ranks have as many CPUs, apart or shared, as Open MPI and Hydra would give them.
func TestBindsAsMPI(t *testing.T) {
	t.Parallel()
	if runtime.NumCPU() < 2 {
		t.Skip("one CPU leaves nothing to choose")
	}
	binary, err := e2etest.Binary()
	must.Do(t, err)
	// cpus returns how many CPUs each of two ranks has, and how many both have.
	cpus := func(run func(*testing.T, *regexp.Regexp, int, ...string) [][]string, argv ...string) string {
		t.Helper()
		found := run(t, allowedCPUs, 2, append(argv, "grep", "Cpus_allowed:", "/proc/self/status")...)
		a, b := mask(t, found[0][1]), mask(t, found[1][1])
		return fmt.Sprintf("%d and %d CPUs, %d of them shared", ones(a), ones(b), ones(new(big.Int).And(a, b)))
	}
	for _, to := range []string{"none", "hwthread", "core", "numa", "socket"} {
		got := cpus(own, binary, "-np", "2", "--no-tag-output", "--bind-to", to)
		if want := cpus(peer, openMPI, "--allow-run-as-root", "-np", "2", "--bind-to", to); got != want {
			t.Errorf("--bind-to %s: %s, but Open MPI: %s", to, got, want)
		}
		if want := cpus(peer, "mpiexec.hydra", "-n", "2", "-bind-to", to); got != want {
			t.Errorf("--bind-to %s: %s, but Hydra: %s", to, got, want)
		}
	}
	if got, want := cpus(own, binary, "-np", "2", "--no-tag-output", "--map-by", "slot:PE=1"), cpus(peer, openMPI, "--allow-run-as-root", "-np", "2", "--map-by", "slot:PE=1"); got != want {
		t.Errorf("--map-by slot:PE=1: %s, but Open MPI: %s", got, want)
	}
}

// mask reads a set of CPUs as the kernel writes it: ffffffff,0000000f.
func mask(t *testing.T, text string) *big.Int {
	t.Helper()
	m, ok := new(big.Int).SetString(strings.ReplaceAll(text, ",", ""), 16)
	if !ok {
		t.Fatalf("no CPUs in %q", text)
	}
	return m
}

func ones(m *big.Int) int { return strings.Count(m.Text(2), "1") }
