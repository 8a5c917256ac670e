package elastic

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"syscall"
	"testing"
	"time"

	"gorun/contrib/e2e/e2etest"
)

var long = flag.Bool("long", false, "whether TestLossAmid has all losses in all moments")

// losses are what may be struck, on a host or two.
var losses = []struct {
	name   string
	hosts  int
	lease  time.Duration // that is waited for
	strike func(j *e2etest.Training, host int)
}{
	{"rank", 1, 0, func(j *e2etest.Training, host int) { kill9(j, host, "steps.py") }},
	{"daemon", 1, 0, func(j *e2etest.Training, host int) { kill9(j, host, "gorun worker --daemon") }},
	{"host", 1, 0, func(j *e2etest.Training, host int) { j.Must(j.Host(host).Kill()) }},
	{"two hosts", 2, 0, func(j *e2etest.Training, host int) { j.Must(j.Host(host).Kill()) }},
	{"power of a host", 1, 8 * time.Second, func(j *e2etest.Training, host int) { j.Must(j.Host(host).PowerOff()) }},
}

func kill9(j *e2etest.Training, host int, args string) {
	j.T.Helper()
	j.Must(syscall.Kill(j.Pid(host, args), syscall.SIGKILL))
}

// TestLossAmid: a process, a daemon, one host or two, or the power of one, is lost while large tensors are under way, while
// ranks commit, or while the next world is formed because of another loss, so that some of the others may have a result and
// have committed it, and some not. All of them go on from the newest step that any of them has kept, soon after the loss
// was noticed, and no one adds anything twice. All but a few of the losses are left to make soak, which takes other hosts and
// moments each time.
func TestLossAmid(t *testing.T) {
	t.Parallel()
	type moment struct {
		name   string
		hosts  int
		script []string
	}
	moments := []moment{
		{"an allreduce", 3, []string{"--length", "400000", "--steps", "40"}},
		{"a commit", 3, []string{"--linger", "0.1", "--steps", "60"}},
		{"another loss", 4, []string{"--length", "400000", "--steps", "40"}},
	}
	seed := uint64(1)
	chosen := []int{5, 9, 2, 11, 13, 14} // a rank and the power amid a commit, a host amid an allreduce, a daemon, two hosts and the power amid another loss
	if *long {
		seed = uint64(time.Now().UnixNano())
		chosen = rand.Perm(len(losses) * len(moments))
	}
	rng := rand.New(rand.NewPCG(3, seed))
	afterLoss := e2etest.InMost(t, "training went on after a loss was noticed", 2*time.Second)
	for _, k := range chosen {
		loss, at := losses[k%len(losses)], moments[k/len(losses)]
		hosts, after := rng.Perm(at.hosts), time.Duration(rng.IntN(int(100*time.Millisecond)))
		t.Run(loss.name+" amid "+at.name, func(t *testing.T) {
			c := e2etest.NewCluster(t, at.hosts)
			script := append([]string{e2etest.Python, "testdata/elastic/steps.py", "--tell", "--commit", "1"}, at.script...)
			alone := exec.CommandContext(t.Context(), filepath.Join(c.Root, "bin/gorun"), append([]string{"-np", "1"}, script...)...)
			alone.Dir = c.Root
			list := ""
			for h := range at.hosts {
				list += fmt.Sprintf(",host%d:1", h+1)
			}
			// A host of which only the daemon was killed would be back before the end.
			args := []string{"--min-np", "1", "--on-failure", "shrink", "--blacklist-cooldown-range", "600", "600", "-H", list[1:]}
			if loss.lease > 0 || at.name == "another loss" {
				// A host that is killed before the others have connected with it is silent, as one without power.
				args = append(args, "--lease", "8")
			}
			j := c.Follow(append(append(args, script...), "--ranks", strconv.Itoa(at.hosts))...)
			j.Await(fmt.Sprintf(`commit 1[05] epoch \d+ size %d`, at.hosts))
			left := at.hosts - loss.hosts
			if at.name == "another loss" {
				left--
				kill9(j, hosts[loss.hosts]+1, "steps.py")
				j.Await(`^gorun: epoch \d+: .*(lost|exit|kill|signal)`)
			} else {
				time.Sleep(after) // anywhere in a step
			}
			struck := time.Now()
			for _, h := range hosts[:loss.hosts] {
				loss.strike(j, h+1)
			}
			j.Succeed()
			c.ExpectNothingLeft(10 * time.Second)
			afterLoss(wentOn(j, struck, left, loss.lease))

			out, err := alone.CombinedOutput()
			want := regexp.MustCompile(`weights (\w+)`).FindSubmatch(out)
			if err != nil || want == nil {
				t.Fatalf("undisturbed: %v\n%s", err, out)
			}
			ends, _ := j.Out.Find(fmt.Sprintf(`done rank \d of %d: steps %s .* weights (\w+)`, left, at.script[len(at.script)-1]))
			if len(ends) != left || slices.ContainsFunc(ends, func(e []string) bool { return e[1] != string(want[1]) }) {
				t.Errorf("the ends are %q, want %d of weights %s\n%s", ends, left, want[1], j.Out)
			}
		})
	}
}

// wentOn checks that so many ranks went on after a loss from the newest step that any of them had kept, and returns how soon
// after it was noticed.
func wentOn(j *e2etest.Training, struck time.Time, left int, lease time.Duration) (took time.Duration) {
	j.T.Helper()
	world := fmt.Sprintf(`is rank \d of %d from step`, left)
	began := findAfter(j, struck, `process (\d+) `+world+` (\d+)`)
	if len(began) != left {
		j.T.Fatalf("%d processes went on in a world of %d\n%s", len(began), left, j.Out)
	}
	kept := keptBefore(j, struck, world)
	newest := 0
	for _, b := range began {
		process, _ := strconv.Atoi(b[1])
		newest = max(newest, kept[process])
	}
	for _, b := range began {
		if b[2] != strconv.Itoa(newest) {
			j.T.Errorf("process %s went on from step %s, want %d, the newest that a survivor had kept: %v\n%s", b[1], b[2], newest, kept, j.Out)
		}
	}
	since := func(at time.Time) bool { return at.After(struck) }
	_, said := j.Out.Find(`^gorun: epoch \d+: `)
	_, gone := j.Out.Find(`^gorun: host\d is lost: `)
	_, on := j.Out.Find(world)
	goes := on[slices.IndexFunc(on, since)]
	noticed := said[slices.IndexFunc(said, since)]
	for _, at := range gone { // the last of several
		if since(at) && at.Before(goes) {
			noticed = at
		}
	}
	took = goes.Sub(noticed).Round(time.Millisecond)
	after := noticed.Sub(struck).Round(time.Millisecond)
	j.T.Logf("noticed after %v; %v later training goes on from step %d, of the steps kept by processes %v", after, took, newest, kept)
	if took > 10*time.Second { // which is five times what most may take: other tests run, too
		j.T.Errorf("training went on %v after the loss was noticed\n%s", took, j.Out)
	}
	if lease > 0 && (after < lease-2*time.Second || after > lease+15*time.Second) { // what was heard last may be a little older than the loss
		j.T.Errorf("the loss of power was noticed after %v, want the lease of %v and a little\n%s", after, lease, j.Out)
	}
	return took
}

// findAfter returns the lines that match and came after a moment.
func findAfter(j *e2etest.Training, since time.Time, pattern string) [][]string {
	found, at := j.Out.Find(pattern)
	return found[sort.Search(len(at), func(i int) bool { return at[i].After(since) }):]
}

// keptBefore returns the last step that each process committed before it went on in a world that matches, which began
// after that moment.
func keptBefore(j *e2etest.Training, since time.Time, world string) map[int]int {
	kept, begun := map[int]int{}, map[int]bool{}
	found, at := j.Out.Find(`process (\d+) (kept step (\d+)|` + world + `)`)
	for i, f := range found {
		process, _ := strconv.Atoi(f[1])
		if f[3] == "" {
			begun[process] = begun[process] || at[i].After(since)
		} else if step, _ := strconv.Atoi(f[3]); !begun[process] {
			kept[process] = max(kept[process], step)
		}
	}
	return kept
}

// TestRankAfterHost: a rank is lost after a host has hung up, and before that host counts as lost. The next world has it as a
// member that no one reaches. That it hung up in the world before counts on, so it is lost soon, and not after its lease.
func TestRankAfterHost(t *testing.T) {
	for name, hosts := range map[string][2]int{"the first host": {1, 3}, "the last host": {3, 1}} {
		t.Run(name, func(t *testing.T) {
			c := e2etest.NewCluster(t, 3)
			j := c.TrainOn("--min-np", "1", "--on-failure", "shrink", "--blacklist-cooldown-range", "600", "600", "-H", "host1:1,host2:1,host3:1")
			j.Await(`batch 30$`)
			struck := time.Now()
			j.Must(j.Host(hosts[0]).Kill())
			time.Sleep(300 * time.Millisecond)
			kill9(j, hosts[1], "train.py")
			took := j.Again(1, struck).Sub(struck).Round(time.Millisecond)
			if t.Logf("training goes on after %v", took); took > 15*time.Second {
				t.Errorf("training goes on after %v only, and the lease is 30 s\n%s", took, j.Out)
			}
			j.EndNow(1)
		})
	}
}
