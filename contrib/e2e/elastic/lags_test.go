package elastic

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"gorun/contrib/e2e/e2etest"
)

// TestStraggler: a rank that is stopped for 30 % of the time is told, with its host, and a spare takes its place without a
// lost step.
func TestStraggler(t *testing.T) {
	c := e2etest.NewCluster(t, 4)
	c.Torch = true // its optimizer counts steps
	j := c.TrainOn("-np", "3", "--min-np", "2", "--spares", "1", "--evict-stragglers", "-H", "host1:1,host2:1,host3:1,host4:1")
	j.Await(`batch 30$`)
	awaitSpare(j, 3)
	host, pid := processOf(j, 1)
	begun := time.Now()
	for told := fmt.Sprintf(`gorun: rank 1 on host%d slows the job down: it takes `, host); !j.Out.Has(told); {
		syscall.Kill(pid, syscall.SIGSTOP) // it ends soon after it was told
		time.Sleep(90 * time.Millisecond)
		syscall.Kill(pid, syscall.SIGCONT)
		time.Sleep(210 * time.Millisecond)
		if time.Since(begun) > time.Minute {
			t.Fatalf("nothing is told\n%s", j.Out)
		}
	}
	t.Logf("told after %v", time.Since(begun).Round(time.Millisecond))
	j.Again(3, begun)
	expectWorld(j, begun, "0", "2", "3")
	j.Cluster.Await("no process 1", func() bool { return hostOf(j, 1) == 0 })
	j.EndNow(3)
	expectOnce(j)
}
