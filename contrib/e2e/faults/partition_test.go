//go:build linux

package faults

import (
	"testing"

	"gorun/contrib/e2e/e2etest"
	"gorun/contrib/must"
)

// TestPartition: one of three hosts does not hear the two others any more, nor they it, while all hear the launcher. It
// is the one that is lost, whichever host notices first, and the others go on.
func TestPartition(t *testing.T) {
	c := e2etest.NewCluster(t, 3)
	c.Torch = true
	j := c.TrainOn("--lease", "4", "--min-np", "2", "--on-failure", "shrink", "-H", "host1:1,host2:1,host3:1")
	j.Await(`is rank 2 of 3`) // hosts may come one after the other
	j.Await(`batch 20$`)
	for _, other := range []int{2, 3} {
		must.Do(t, c.Host(1).Mute(c.Host(other)))
		must.Do(t, c.Host(other).Mute(c.Host(1)))
	}
	j.Await(`gorun: host1 is lost: `)
	j.Await(`is rank \d of 2 from batch [1-9]`)
	j.Enough()
	j.End(2)
	if j.Out.Has(`gorun: host[23] is lost: `) {
		t.Errorf("a host was lost that was not cut off\n%s", j.Out)
	}
}
