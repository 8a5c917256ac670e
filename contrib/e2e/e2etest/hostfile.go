//go:build linux

package e2etest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"gorun/contrib/must"
)

// Tests of options of elastic jobs, on hosts that lose ranks: testdata/elastic/steps.py computes a sum that is known in
// advance, and fails if a step is lost or done twice.

// Count starts steps.py, which runs until Enough is called.
func (c *Cluster) Count(script []string, args ...string) *Training {
	c.T.Helper()
	until := filepath.Join(c.Shared("counting"), "enough")
	args = append(args, Python, "testdata/elastic/steps.py", "--tell", "--steps", "20", "--commit", "1", "--pause", "0.02", "--until", until)
	j := c.Follow(append(args, script...)...)
	j.Until = until
	return j
}

// Counted waits for the job and checks that so many ranks ended well, all with the same weights.
func (j *Training) Counted(ranks int) {
	j.T.Helper()
	j.Enough()
	j.Succeed()
	j.Idle()
	ends, _ := j.Out.Find(fmt.Sprintf(`done rank \d of %d: steps (\d+) .* weights (\w+)`, ranks))
	if len(ends) != ranks {
		j.T.Fatalf("%d of %d ranks ended well\n%s", len(ends), ranks, j.Out)
	}
	for _, e := range ends {
		if e[1] != ends[0][1] || e[2] != ends[0][2] {
			j.T.Errorf("ranks end differently: %q", ends)
		}
	}
}

// Fails waits for a job that ends with a status, an error and a hint.
func (j *Training) Fails(code int, said, hint string) {
	j.T.Helper()
	j.Cmd.Wait()
	if got := j.Cmd.ProcessState.ExitCode(); got != code || !j.Out.Has(`^gorun: error: `+said) || !j.Out.Has(`^gorun: hint: `+hint) {
		j.T.Errorf("exit status %d, want %d, %q and %q\n%s", got, code, said, hint, j.Out)
	}
	j.Idle()
}

// HostFile is the output of a discovery script.
type HostFile struct {
	c    *Cluster
	Name string
}

// HostFile makes a file with the hosts of a discovery script.
func (c *Cluster) HostFile(hosts ...string) *HostFile {
	c.T.Helper()
	f := &HostFile{c, filepath.Join(c.Shared("hosts"), "list")}
	f.Say(hosts...)
	return f
}

// Say makes the script print these hosts from now on.
func (f *HostFile) Say(hosts ...string) {
	f.c.T.Helper()
	must.Do(f.c.T, os.WriteFile(f.Name+".new", []byte(strings.Join(hosts, "\n")+"\n"), 0o600))
	must.Do(f.c.T, os.Rename(f.Name+".new", f.Name))
}
