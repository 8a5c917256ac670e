package elastic

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"gorun/contrib/e2e/e2etest"
)

// TestLeaseOfOne: a host that no other one watches, since it is the only one of the job's world, is lost when its lease ends, and
// not when TCP gives up. That ends a fixed job; an elastic one goes on on a spare host.
func TestLeaseOfOne(t *testing.T) {
	t.Parallel()
	const lease = 6 * time.Second
	for name, args := range map[string][]string{
		"alone":               {"-np", "1", "-H", "host1"},
		"beside a spare host": {"--min-np", "1", "--max-np", "1", "-H", "host1:1,host2:1"},
	} {
		t.Run(name, func(t *testing.T) {
			c := e2etest.NewCluster(t, 2)
			const script = `import time; print("busy", flush=True); time.sleep(1000)`
			j := c.Follow(append(args, "--lease", lease.String(), e2etest.Python, "-c", script)...)
			j.Await(`busy`)
			victim := 1 // the host that is ready first has the rank
			if c.Runs(2, script) {
				victim = 2
			}
			struck := time.Now()
			j.Must(c.Host(victim).PowerOff())
			lost := fmt.Sprintf(`^gorun: (error: host%d: run: |host%[1]d is lost: )silent for 6s`, victim)
			j.Await(lost)
			took := time.Since(struck).Round(time.Millisecond)
			t.Logf("the host was lost after %v", took)
			if took < lease-2*time.Second || took > lease+6*time.Second { // it was heard within the second before
				t.Errorf("the host was lost after %v, want the lease of %v and a little", took, lease)
			}
			if name == "alone" {
				j.Cmd.Wait()
				if code := j.Cmd.ProcessState.ExitCode(); code != 255 {
					t.Errorf("exit status %d, want 255\n%s", code, j.Out)
				}
			} else {
				j.Await(`^\[1\]<stdout>:busy$`)
				j.Must(j.Cmd.Process.Signal(syscall.SIGTERM))
				j.Cmd.Wait()
			}
			c.ExpectNothingLeft(5 * time.Second)
		})
	}
}
