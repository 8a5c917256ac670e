//go:build linux

package e2etest

import (
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"
)

// Descent is a running testdata/resilience/descend.py, with one rank on each host.
type Descent struct {
	*Training
}

// Descend starts it.
func (c *Cluster) Descend(batches int, pause string, args ...string) *Descent {
	c.T.Helper()
	var hosts string
	for i := range c.Hosts() {
		hosts += fmt.Sprintf(",host%d:1", i+1)
	}
	args = append([]string{"-v", "-H", hosts[1:]}, args...)
	j := c.Follow(append(args, Python, "testdata/resilience/descend.py", "--batches", strconv.Itoa(batches), "--pause", pause)...)
	j.batches = batches
	return &Descent{j}
}

// Reach waits for a batch.
func (d *Descent) Reach(batch int) {
	d.T.Helper()
	d.Await(fmt.Sprintf(`batch %d$`, batch))
}

// Weights waits for the end, checks that the world stayed the same, and returns the hash of all ranks' weights.
func (d *Descent) Weights() string {
	d.T.Helper()
	d.Succeed()
	d.Idle()
	found, _ := d.Out.Find(`rank \d+ has (\w+)`)
	if len(found) != len(d.Hosts()) || d.Out.Has(`(is lost|epoch [2-9])`) {
		d.T.Fatalf("the world did not stay as it was:\n%s", d.Out)
	}
	for _, f := range found {
		if f[1] != found[0][1] {
			d.T.Fatalf("ranks differ:\n%s", d.Out)
		}
	}
	return found[0][1]
}

// ExpectWeights waits for the end, and fails the test unless the weights are those of an undisturbed job.
func (d *Descent) ExpectWeights(want string) {
	d.T.Helper()
	if got := d.Weights(); got != want {
		d.T.Errorf("the weights are %s, undisturbed they are %s\n%s", got, want, d.Out)
	}
}

// Carried returns the totals of the job's links, which it prints at its end.
func (d *Descent) Carried() (sent, again, renewed float64) {
	d.T.Helper()
	found, _ := d.Out.Find(`between hosts: sent (\d+) bytes, and (\d+) bytes again in \d+ segments?; connections were renewed (\d+) times?`)
	if len(found) != 1 {
		d.T.Fatalf("what the links carried is not reported:\n%s", d.Out)
	}
	var n [3]float64
	for i := range n {
		n[i], _ = strconv.ParseFloat(found[0][i+1], 64)
	}
	return n[0], n[1], n[2]
}

// Intervals returns the times between batches that ended in [from, to).
func (d *Descent) Intervals(from, to time.Time) []time.Duration {
	_, at := d.Out.Find(`batch \d+$`)
	var out []time.Duration
	for i := 1; i < len(at); i++ {
		if !at[i].Before(from) && at[i].Before(to) {
			out = append(out, at[i].Sub(at[i-1]))
		}
	}
	slices.Sort(out)
	return out
}

// Median returns the median.
func Median(sorted []time.Duration) time.Duration { return sorted[len(sorted)/2] }

// undisturbedDescents are the hashes by numbers of hosts and batches: they depend on nothing else.
var undisturbedDescents sync.Map

// UndisturbedDescent returns the hash of an undisturbed job on these hosts.
func (c *Cluster) UndisturbedDescent(batches int) string {
	c.T.Helper()
	key := [2]int{len(c.Hosts()), batches}
	if w, ok := undisturbedDescents.Load(key); ok {
		return w.(string)
	}
	d := c.Descend(batches, "0")
	w := d.Weights()
	if _, again, renewed := d.Carried(); again != 0 || renewed != 0 {
		c.T.Logf("undisturbed, %.0f bytes were sent again and %.0f connections renewed: the machine is busy", again, renewed)
	}
	undisturbedDescents.Store(key, w)
	return w
}
