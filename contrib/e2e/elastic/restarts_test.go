package elastic

import (
	"strings"
	"testing"
	"time"

	"gorun/contrib/e2e/e2etest"
	"gorun/contrib/must"
)

// TestMaxRestarts: when a rank on another host has failed, all ranks start again on the same hosts, with a world that works, in a job
// over ssh and in a detached one.
func TestMaxRestarts(t *testing.T) {
	c := e2etest.NewCluster(t, 2)
	const program = `import os, sys
import gorun.numpy as hvd
hvd.init()
print("sum", hvd.allreduce([1.0], op=hvd.Sum)[0], "restart", os.environ["TORCHELASTIC_RESTART_COUNT"], flush=True)
if hvd.rank() == 1 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    sys.exit(5)
hvd.barrier()
`
	for _, how := range []string{"--verbose", "--detach"} {
		cmd, stdout, stderr := c.Command("-np", "2", "-H", "host1:1,host2:1", "--max-restarts", "1", how, "python3", "-c", program)
		if err := cmd.Run(); err != nil {
			t.Fatalf("%s: %v: %s", how, err, stderr)
		}
		said := stdout.String() + stderr.String()
		if how == "--detach" {
			cmd, stdout, _ := c.Command("logs", "-f")
			must.Do(t, cmd.Run())
			said = stdout.String()
		}
		if n := strings.Count(said, "sum 2.0 restart 1"); n != 2 || !strings.Contains(said, "gorun: rank 1 on host2 exited with status 5: all ranks start again, restart 1 of 1") {
			t.Errorf("%s: %d ranks of two began again:\n%s", how, n, said)
		}
		c.ExpectLeft(5*time.Second, "/.local/state/gorun/jobs/")
	}
}
