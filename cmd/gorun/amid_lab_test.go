//go:build linux

package main

import (
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"regexp"
	"sort"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// TestLossAmidAllreduce: a process, a daemon or a host is killed while large tensors are under way, so that some of the
// others may have the result and have committed it, and some not. All of them go on from the newest step that any of them
// has kept, and nobody adds anything twice.
func TestLossAmidAllreduce(t *testing.T) {
	const steps, length = 40, "400000"
	rng := rand.New(rand.NewPCG(3, uint64(time.Now().UnixNano())))
	for name, strike := range map[string]func(*training, int){
		"rank": func(j *training, host int) {
			syscall.Kill(j.pid(host, "steps.py"), syscall.SIGKILL)
		},
		"daemon": func(j *training, host int) {
			syscall.Kill(j.pid(host, "gorun worker --daemon"), syscall.SIGKILL)
		},
		"host": func(j *training, host int) {
			if err := j.Host(host).Kill(); err != nil {
				j.t.Fatal(err)
			}
		},
	} {
		host, after := 1+rng.IntN(3), time.Duration(rng.IntN(int(100*time.Millisecond)))
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, 3)
			steps := strconv.Itoa(steps)
			script := []string{python, "testdata/elastic/steps.py", "--tell", "--commit", "1", "--length", length, "--steps", steps}
			j := c.follow(append([]string{"--min-np", "1", "--on-failure", "shrink", "-H", "host1:1,host2:1,host3:1"}, script...)...)
			j.await(`commit [1-3][05] epoch \d+ size 3`) // hosts may come one after the other
			time.Sleep(after)                            // anywhere in a step
			struck := time.Now()
			strike(j, host)
			t.Logf("struck host%d after %v more", host, after)
			if err := j.cmd.Wait(); err != nil {
				t.Fatalf("%v\n%s", err, j.out)
			}
			c.expectNothingLeft(10 * time.Second)

			began := j.findAfter(struck, `process (\d+) is rank \d of 2 from step (\d+)`)
			if len(began) != 2 {
				t.Fatalf("%d processes went on in a world of two\n%s", len(began), j.out)
			}
			kept := j.keptBefore(struck, `is rank \d of 2 from step`)
			newest := 0
			for _, b := range began {
				process, _ := strconv.Atoi(b[1])
				newest = max(newest, kept[process])
			}
			t.Logf("of the steps kept by processes %v, training went on from step %s", kept, began[0][2])
			for _, b := range began {
				if b[2] != strconv.Itoa(newest) {
					t.Errorf("process %s went on from step %s, want %d, the newest that a survivor had kept: %v\n%s", b[1], b[2], newest, kept, j.out)
				}
			}
			alone := exec.CommandContext(t.Context(), filepath.Join(c.root, "bin/gorun"), append([]string{"-np", "1"}, script...)...)
			alone.Dir = c.root
			out, err := alone.CombinedOutput()
			want := regexp.MustCompile(`weights (\w+)`).FindSubmatch(out)
			if err != nil || want == nil {
				t.Fatalf("undisturbed: %v\n%s", err, out)
			}
			ends, _ := j.out.find(`done rank \d of 2: steps ` + steps + ` .* weights (\w+)`)
			if len(ends) != 2 || ends[0][1] != string(want[1]) || ends[1][1] != ends[0][1] {
				t.Errorf("the ends are %q, want two of weights %s\n%s", ends, want[1], j.out)
			}
		})
	}
}

// findAfter returns the lines that match, of those that came after a moment.
func (j *training) findAfter(since time.Time, pattern string) [][]string {
	found, at := j.out.find(pattern)
	return found[sort.Search(len(at), func(i int) bool { return at[i].After(since) }):]
}

// keptBefore returns the last step that each process committed before it went on in a world that matches, which began
// after that moment.
func (j *training) keptBefore(since time.Time, world string) map[int]int {
	kept, begun := map[int]int{}, map[int]bool{}
	found, at := j.out.find(`process (\d+) (kept step (\d+)|` + world + `)`)
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
