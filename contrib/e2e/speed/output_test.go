package speed

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"gorun/contrib/e2e/e2etest"
	"gorun/contrib/must"
)

// TestMuchOutput: 64 ranks, of one host behind one ssh connection and of four hosts, write as fast as they can, and
// every line arrives whole and in its rank's order. Ranks, daemons, sshds and launcher together take no more CPU time
// for that than one CPU has at 10 MB/s: unlike the time that passes, this is the same on a machine that is busy.
func TestMuchOutput(t *testing.T) {
	c := e2etest.NewClusterAlone(t, 4)
	for _, hosts := range []string{"host1:64", "host1:16,host2:16,host3:16,host4:16"} {
		t.Run(hosts, func(t *testing.T) { muchOutput(c, t, hosts) })
	}
}

func muchOutput(c *e2etest.Cluster, t *testing.T, hosts string) {
	const ranks, lines, width = 64, 2500, 80
	filler := strings.Repeat("x", width)
	write := func(lines int) (stdout string, took, used time.Duration) {
		cmd, out, stderr := c.Command("-np", strconv.Itoa(ranks), "-H", hosts, "seq", "-f", "%.0f "+filler, strconv.Itoa(lines))
		begin, before := time.Now(), cpuUsed(c)
		if err := cmd.Run(); err != nil {
			t.Fatalf("%v: %s", err, stderr)
		}
		took = time.Since(begin)
		c.ExpectNothingLeft(5 * time.Second)
		return out.String(), took, cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime() + cpuUsed(c) - before
	}
	_, _, without := write(0) // also brings the binary to the hosts
	_, _, again := write(0)
	stdout, took, used := write(lines)
	used -= min(without, again)
	size := float64(len(stdout))
	t.Logf("%.1f MB in %v, %.0f MB/s; %.0f MB per second of CPU time", size/1e6, took.Round(time.Millisecond), size/1e6/took.Seconds(), size/1e6/used.Seconds())
	if size/used.Seconds() < 10e6 {
		t.Errorf("%.1f MB took %v of CPU time", size/1e6, used)
	}
	line := regexp.MustCompile(`^\[(\d+)\]<stdout>:(\d+) ` + filler + `$`)
	next := make([]int, ranks)
	for text := range strings.Lines(stdout) {
		m := line.FindStringSubmatch(strings.TrimSuffix(text, "\n"))
		if m == nil {
			t.Fatalf("a torn line: %q", text)
		}
		rank, _ := strconv.Atoi(m[1])
		number, _ := strconv.Atoi(m[2])
		if rank >= ranks || number != next[rank]+1 {
			t.Fatalf("rank %d: line %d after %d", rank, number, next[rank])
		}
		next[rank] = number
	}
	for rank, last := range next {
		if last != lines {
			t.Errorf("rank %d: %d of %d lines", rank, last, lines)
		}
	}
}

// used is the CPU time of all that has ended on the hosts: their first process has waited for it.
func cpuUsed(c *e2etest.Cluster) (sum time.Duration) {
	c.T.Helper()
	for _, h := range c.Hosts() {
		text := must.Read(c.T, fmt.Sprintf("/proc/%d/stat", h.Processes()[0].PID))
		_, rest, _ := strings.Cut(string(text), ") ")
		for _, ticks := range strings.Fields(rest)[13:15] { // cutime, cstime
			n, err := strconv.Atoi(ticks)
			must.Do(c.T, err)
			sum += time.Duration(n) * time.Second / 100 // USER_HZ is 100 everywhere that Go knows
		}
	}
	return sum
}
