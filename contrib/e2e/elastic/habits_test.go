package elastic

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gorun/contrib/e2e/e2etest"
	"gorun/contrib/must"
)

// TestHorovodScenarios: what Horovod's own tests of elastic jobs look at comes out the same under the name horovodrun:
// the size of the world after a failure, when a host is used again, and what ends a job. TestScale adds and removes hosts.
func TestHorovodScenarios(t *testing.T) {
	t.Parallel()
	e2etest.NeedTorch(t)
	four := []string{"-np", "4", "--min-np", "2", "--max-np", "4"}
	for name, tc := range map[string]struct {
		flags  []string
		script []string
		want   string // the sizes of the epochs
		code   int
	}{
		"one rank fails":            {four, []string{"--exit", "0"}, "4 2 2", 0},
		"all hosts are blacklisted": {four, []string{"--exit", "0,2"}, "4", 1},
		"too few are left":          {[]string{"-np", "4", "--min-np", "4", "--elastic-timeout", "20"}, []string{"--exit", "0"}, "4", 1},
		"a host is used again":      {append(four, "--blacklist-cooldown-range", "2", "5"), []string{"--exit", "0", "--wait", "1=2,2=4"}, "4 2 4", 0},
	} {
		t.Run(name, func(t *testing.T) {
			c := e2etest.NewCluster(t, 2)
			list := c.HostFile("host1:2", "host2:2")
			called := filepath.Join(c.Shared("name"), "horovodrun")
			must.Do(t, os.Symlink(c.Binary, called))
			c.Binary = called
			args := append(tc.flags, "--host-discovery-script", "cat "+list.Name, e2etest.Python, "testdata/elastic/sizes.py")
			j := c.Follow(append(args, tc.script...)...)
			j.Cmd.Wait()
			told, _ := j.Out.Find(`epoch \d: size (\d)`)
			var sizes []string
			for _, m := range told {
				sizes = append(sizes, m[1])
			}
			if got, code := strings.Join(sizes, " "), j.Cmd.ProcessState.ExitCode(); got != tc.want || code != tc.code {
				t.Errorf("sizes %s and exit status %d, want %s and %d\n%s", got, code, tc.want, tc.code, j.Out)
			}
			j.Idle()
		})
	}
}
