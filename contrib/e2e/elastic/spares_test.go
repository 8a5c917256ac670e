package elastic

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"gorun/contrib/e2e/e2etest"
)

// hostOf returns the number of the host on which a process of the training runs.
func hostOf(j *e2etest.Training, number int) int {
	j.T.Helper()
	host, _ := processOf(j, number)
	return host
}

// awaitSpare waits until a spare has loaded its program: it uses no processor any more.
func awaitSpare(j *e2etest.Training, number int) {
	j.T.Helper()
	last, since := "", time.Now()
	j.Cluster.Await(fmt.Sprintf("spare %d", number), func() bool {
		host, pid := processOf(j, number)
		if host == 0 {
			return false
		}
		used := ""
		stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if f := strings.Fields(string(stat)); len(f) > 14 {
			used = f[13] + " " + f[14]
		}
		if used != last {
			last, since = used, time.Now()
		}
		return time.Since(since) > time.Second
	})
}

// expectWorld waits until the ranks of the world after a moment have entered it, and expects them to be these processes. A
// process that was started for that world has a greater number than all spares.
func expectWorld(j *e2etest.Training, after time.Time, want ...string) {
	j.T.Helper()
	var got []string
	j.Cluster.Await(fmt.Sprintf("world of processes %q", want), func() bool {
		found, at := j.Out.Find(fmt.Sprintf(`process (\d+) is rank \d of %d from batch`, len(want)))
		got = nil
		for i, f := range found {
			if at[i].After(after) {
				got = append(got, f[1])
			}
		}
		return len(got) >= len(want)
	})
	if slices.Sort(got); !slices.Equal(got, want) {
		j.T.Errorf("processes %q are in the next world, want %q\n%s", got, want, j.Out)
	}
}

// expectOnce expects no batch to have been done again.
func expectOnce(j *e2etest.Training) {
	j.T.Helper()
	seen := map[string]int{}
	batches, _ := j.Out.Find(`>:batch (\d+)$`)
	for _, b := range batches {
		seen[b[1]]++
	}
	for batch, n := range seen {
		if n > 1 {
			j.T.Errorf("batch %s was done %d times\n%s", batch, n, j.Out)
		}
	}
}

// TestSpares: what takes the place of a rank that was killed, or of the ranks of a host that is gone, waits in init
// already. The world keeps its size, and the training goes on from the last commit before a new process has loaded its
// program.
func TestSpares(t *testing.T) {
	c := e2etest.NewCluster(t, 4)
	c.Torch = true
	j := c.TrainOn("-np", "3", "--min-np", "2", "--spares", "1", "-H", "host1:2,host2:2,host3:2,host4:2")
	j.Await(`batch 30$`)
	awaitSpare(j, 3)
	struck := time.Now()
	killProcess(j, 2)
	rank := j.Again(3, struck).Sub(struck)
	expectWorld(j, struck, "0", "1", "3")

	awaitSpare(j, 4)
	struck = time.Now()
	j.Must(j.Host(hostOf(j, 3)).Kill())
	host := j.Again(3, struck).Sub(struck)
	expectWorld(j, struck, "0", "1", "4")
	noticed, at := j.Out.Find(`gorun: host\d is lost`)
	if len(noticed) != 1 {
		t.Fatalf("%q", noticed)
	}
	host -= at[0].Sub(struck)
	t.Logf("training goes on %v after a rank was killed, and %v after the loss of a host was noticed", rank, host)
	if rank > 10*time.Second || host > 10*time.Second { // other tests run, too
		t.Errorf("training goes on %v after a rank was killed, and %v after the loss of a host was noticed", rank, host)
	}
	j.EndNow(3)
}

// TestSpareLostToo: a host with a rank and one with a spare lose power together. The others do not wait for that spare.
func TestSpareLostToo(t *testing.T) {
	c := e2etest.NewCluster(t, 4)
	j := c.TrainOn("-np", "3", "--min-np", "2", "--spares", "1", "-H", "host1:1,host2:1,host3:1,host4:1")
	j.Await(`batch 30$`)
	awaitSpare(j, 3)
	struck := time.Now()
	for _, number := range []int{2, 3} {
		j.Must(j.Host(hostOf(j, number)).Kill())
	}
	took := j.Again(2, struck).Sub(struck)
	if t.Logf("training goes on after %v", took); took > 15*time.Second { // the lease of a host is 30 s
		t.Errorf("training goes on after %v only\n%s", took, j.Out)
	}
	j.EndNow(2)
}
