//go:build linux

package main

import (
	"fmt"
	"testing"
	"time"
)

// TestLeaseOfOne: a host that no other one watches, since it is the only one of the job's world, is lost when its lease ends, and
// not when TCP gives up.
func TestLeaseOfOne(t *testing.T) {
	const lease = 6 * time.Second
	for name, args := range map[string][]string{
		"alone":               {"-np", "1", "-H", "host1"},
		"beside a spare host": {"--min-np", "1", "--max-np", "1", "-H", "host1:1,host2:1"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, 2)
			const script = `import time; print("busy", flush=True); time.sleep(1000)`
			j := c.follow(append(args, "--lease", lease.String(), python, "-c", script)...)
			j.await(`busy`)
			victim := 1 // whoever is ready first has the rank
			if c.runs(2, script) {
				victim = 2
			}
			struck := time.Now()
			j.must(c.Host(victim).PowerOff())
			err := j.cmd.Wait()
			took := time.Since(struck).Round(time.Millisecond)
			t.Logf("the job ended after %v", took)
			if took < lease-2*time.Second || took > lease+6*time.Second { // it was heard within the second before
				t.Errorf("the job ended after %v, want the lease of %v and a little", took, lease)
			}
			if j.cmd.ProcessState.ExitCode() != 255 || !j.out.has(fmt.Sprintf(`gorun: error: host%d: run: silent for 6s`, victim)) {
				t.Errorf("it is not told that host%d is lost: %v\n%s", victim, err, j.out)
			}
			c.expectNothingLeft(5 * time.Second)
		})
	}
}
