package faults

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"gorun/contrib/e2e/e2etest"
	"gorun/contrib/must"
)

// late is a program whose rank 3 comes to the allreduce when a file is there. The script itself sets how long that
// may take, as Horovod's scripts may.
const late = `
import os, sys, time
os.environ["HOROVOD_STALL_CHECK_TIME_SECONDS"] = "1"
os.environ["HOROVOD_STALL_SHUTDOWN_TIME_SECONDS"] = sys.argv[2]
import numpy as np
import gorun.numpy as hvd
hvd.init()
while hvd.rank() == 3 and not os.path.exists(sys.argv[1]):
    time.sleep(0.02)
if hvd.rank() == 3:
    os.remove(sys.argv[1])
hvd.allreduce(np.ones(3), name="late")
`

// TestStall: the launcher names the rank that is waited for, and when it has come.
func TestStall(t *testing.T) {
	c := e2etest.NewCluster(t, 2)
	const file = "/tmp/go" // of each host
	cmd, _, stderr := c.Command("-np", "4", "-H", "host1:2,host2:2", e2etest.Python, "-c", late, file, "0")
	must.Do(t, cmd.Start())
	waits := `gorun: stall: allreduce "allreduce.late" has waited `
	c.Await("report of the stall", func() bool { return stderr.Count(waits) > 0 })
	c.Shell(c.Host(2), "touch "+file)
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v\n%s", err, stderr)
	}
	c.ExpectNothingLeft(5 * time.Second)
}

// TestStallShutdown: a rank that does not come for too long fails the others, with its name.
func TestStallShutdown(t *testing.T) {
	c := e2etest.NewCluster(t, 2)
	r := c.Gorun("-np", "4", "-H", "host1:2,host2:2", e2etest.Python, "-c", late, "/tmp/never", "2")
	if r.Code != 1 || !strings.Contains(r.Stderr, "rank 3 on host2, which is the limit of HOROVOD_STALL_SHUTDOWN_TIME_SECONDS: giving up") ||
		!regexp.MustCompile(`HorovodInternalError: allreduce "allreduce.late" waited .* for rank 3 on host2`).MatchString(r.Stderr) {
		t.Errorf("exit code %d\n%s", r.Code, r.Stderr)
	}
}

// TestTimeoutNamesRanks: a job that takes too long ends with what each rank waits for, and no host is blamed for a rank
// that another one has not heard of yet.
func TestTimeoutNamesRanks(t *testing.T) {
	c := e2etest.NewCluster(t, 2)
	r := c.Gorun("-np", "4", "-H", "host1:2,host2:2", "--timeout", "30", e2etest.Python, "-c", late, "/tmp/never", "0")
	waits := `waits in allreduce "allreduce.late" for rank 3 on host2`
	for _, want := range []string{
		`rank 0 on host1: .*` + waits, `rank 1 on host1: .*` + waits, `rank 2 on host2: .*` + waits,
		`rank 3 on host2: .*has not called allreduce "allreduce.late", which others wait for`,
	} {
		if r.Code != 124 || !regexp.MustCompile(`(?m)^    `+want).MatchString(r.Stderr) {
			t.Errorf("exit code %d, want 124 and %s in\n%s", r.Code, want, r.Stderr)
		}
	}
}

// crossed is a program whose ranks wait for each other under one name in different operations, and go on when a file is
// there: each calls the other's, too.
const crossed = `
import os, sys, time
import numpy as np
import gorun.numpy as hvd
hvd.init()
calls = [lambda: hvd.allreduce_async(np.ones(3), name="x"), lambda: hvd.allgather_async(np.ones(3), name="x")]
if hvd.rank() == 1:
    calls.reverse()
handles = [calls[0]()]
while not os.path.exists(sys.argv[1]):
    time.sleep(0.02)
os.remove(sys.argv[1])
handles.append(calls[1]())
for handle in handles:
    hvd.synchronize(handle)
`

// TestStallOfCrossings: users read that ranks wait for each other in different operations long before the usual time;
// and nothing fails, because they may come to the others' operation, too.
func TestStallOfCrossings(t *testing.T) {
	c := e2etest.NewCluster(t, 2)
	const file = "/tmp/go" // of each host
	cmd, _, stderr := c.Command("-np", "2", "-H", "host1,host2", e2etest.Python, "-c", crossed, file)
	began := time.Now()
	must.Do(t, cmd.Start())
	t.Cleanup(func() { cmd.Process.Kill() }) // whatever comes
	want := `gorun: stall: the same name, different operations: rank 1 on host2 in allgather "x", rank 0 on host1 in allreduce "x"; call the same one on all of them`
	c.Await("report of the crossing", func() bool { return stderr.Count(want) > 0 })
	if took := time.Since(began); took > 45*time.Second { // the usual time is a minute
		t.Errorf("the crossing was reported after %v", took)
	}
	for host := range 2 {
		c.Shell(c.Host(host+1), "touch "+file)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v\n%s", err, stderr)
	}
	c.ExpectNothingLeft(5 * time.Second)
}
