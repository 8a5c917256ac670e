//go:build linux

package elastic

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"gorun/contrib/e2e/e2etest"
	"gorun/contrib/lab"
)

// hostOf returns the number of the host on which a process of the training runs.
func hostOf(j *e2etest.Training, number int) int {
	j.T.Helper()
	runs := func(p lab.Process) bool {
		return strings.Contains(p.Args, "testdata/elastic") && processNumber(p) == fmt.Sprint(number)
	}
	for i := range j.Hosts() {
		if slices.ContainsFunc(j.Host(i+1).Processes(), runs) {
			return i + 1
		}
	}
	return 0
}

// awaitSpare waits until a spare has loaded its program: gorun ps shows that it waits.
func awaitSpare(j *e2etest.Training, number int) {
	j.T.Helper()
	j.Cluster.Await(fmt.Sprintf("spare %d", number), func() bool { return hostOf(j, number) > 0 })
	time.Sleep(2 * time.Second) // as its program takes less to load
}

// TestSpares: what takes the place of a rank that was killed, or of the ranks of a host that is gone, waits in init
// already. The world keeps its size, and the training goes on from the last commit before a new process has loaded its
// program.
func TestSpares(t *testing.T) {
	c := e2etest.NewCluster(t, 4)
	c.Torch = true
	j := c.Train(600, "-np", "3", "--min-np", "2", "--spares", "1", "-H", "host1:2,host2:2,host3:2,host4:2")
	j.Await(`batch 30$`)
	awaitSpare(j, 3)
	struck := time.Now()
	killProcess(j, 2)
	rank := j.Again(3, struck).Sub(struck)

	awaitSpare(j, 4)
	struck = time.Now()
	j.Must(j.Host(hostOf(j, 3)).Kill())
	host := j.Again(3, struck).Sub(struck)
	noticed, at := j.Out.Find(`gorun: host\d is lost`)
	if len(noticed) != 1 {
		t.Fatalf("%q", noticed)
	}
	host -= at[0].Sub(struck)
	t.Logf("training goes on %v after a rank was killed, and %v after the loss of a host was noticed", rank, host)
	if rank > 5*time.Second || host > 5*time.Second { // a rank needs as long to import torch, if others do it too
		t.Errorf("training goes on %v after a rank was killed, and %v after the loss of a host was noticed", rank, host)
	}
	j.End(3)
}
