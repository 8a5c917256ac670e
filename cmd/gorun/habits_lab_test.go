//go:build linux

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestHorovodScenarios: what Horovod's own tests of elastic jobs look at comes out the same under the name horovodrun: the size of the
// world after a failure, when a host is used again, and what ends a job.
func TestHorovodScenarios(t *testing.T) {
	needTorch(t)
	four := []string{"-np", "4", "--min-np", "2", "--max-np", "4"}
	both := []string{"host1:2", "host2:2"}
	for name, tc := range map[string]struct {
		flags  []string
		script []string
		lists  [][]string // of hosts; the next one when the epoch before has been told
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
			c := newCluster(t, 2)
			list := c.hostFile(tc.lists[0]...)
			called := filepath.Join(c.shared("name"), "horovodrun")
			if err := os.Symlink(c.binary, called); err != nil {
				t.Fatal(err)
			}
			c.binary = called
			args := append(tc.flags, "--host-discovery-script", "cat "+list.name, python, "testdata/elastic/sizes.py")
			j := c.follow(append(args, tc.script...)...)
			for n, hosts := range tc.lists[1:] {
				j.await(`epoch ` + string(rune('0'+n)) + `: size `)
				list.say(hosts...)
			}
			j.cmd.Wait()
			told, _ := j.out.find(`epoch \d: size (\d)`)
			var sizes []string
			for _, m := range told {
				sizes = append(sizes, m[1])
			}
			if got, code := strings.Join(sizes, " "), j.cmd.ProcessState.ExitCode(); got != tc.want || code != tc.code {
				t.Errorf("sizes %s and exit status %d, want %s and %d\n%s", got, code, tc.want, tc.code, j.out)
			}
			j.idle()
		})
	}
}
