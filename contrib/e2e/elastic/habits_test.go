//go:build linux

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
// the size of the world after a failure, when a host is used again, and what ends a job.
func TestHorovodScenarios(t *testing.T) {
	t.Parallel()
	e2etest.NeedTorch(t)
	four := []string{"-np", "4", "--min-np", "2", "--max-np", "4"}
	both := []string{"host1:2", "host2:2"}
	for name, tc := range map[string]struct {
		flags  []string
		script []string
		lists  [][]string // of hosts; the next one when the epoch before has been reported
		want   string     // the sizes of the epochs
		code   int
	}{
		"one rank fails":            {four, []string{"--exit", "0"}, [][]string{both}, "4 2 2", 0},
		"ranks of a host fail":      {four, []string{"--exit", "2,3"}, [][]string{both}, "4 2 2", 0},
		"all ranks fail":            {four, []string{"--exit", "0,1,2,3"}, [][]string{both}, "4", 1},
		"all hosts are blacklisted": {four, []string{"--exit", "0,2"}, [][]string{both}, "4", 1},
		"too few are left":          {[]string{"-np", "4", "--min-np", "4", "--elastic-timeout", "20"}, []string{"--exit", "0"}, [][]string{both}, "4", 1},
		"a host is used again": {append(four, "--blacklist-cooldown-range", "2", "5"), []string{"--exit", "0", "--wait", "1=2,2=4"},
			[][]string{both}, "4 2 4", 0},
		"hosts are added and removed": {[]string{"-np", "2", "--min-np", "2", "--max-np", "4"}, []string{"--wait", "0=2,1=4,2=2"},
			[][]string{both[:1], both, both[1:]}, "2 4 2", 0},
		"the reset limit": {[]string{"-np", "2", "--min-np", "2", "--max-np", "4", "--reset-limit", "1"}, []string{"--wait", "0=2,1=4,2=2"},
			[][]string{both[:1], both, both[1:]}, "2 4", 1},
	} {
		t.Run(name, func(t *testing.T) {
			c := e2etest.NewCluster(t, 2)
			list := c.HostFile(tc.lists[0]...)
			called := filepath.Join(c.Shared("name"), "horovodrun")
			must.Do(t, os.Symlink(c.Binary, called))
			c.Binary = called
			args := append(tc.flags, "--host-discovery-script", "cat "+list.Name, e2etest.Python, "testdata/elastic/sizes.py")
			j := c.Follow(append(args, tc.script...)...)
			for n, hosts := range tc.lists[1:] {
				j.Await(`epoch ` + string(rune('0'+n)) + `: size `)
				list.Say(hosts...)
			}
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
