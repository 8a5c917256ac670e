//go:build linux

package main

import "testing"

// TestPartition: one of three hosts does not hear the two others any more, nor they it, while all hear the launcher. It
// is the one that is lost, whoever notices first, and the others go on.
func TestPartition(t *testing.T) {
	needTorch(t)
	c := newCluster(t, 3)
	j := c.trainOn("--lease", "4", "--min-np", "2", "--on-failure", "shrink", "-H", "host1:1,host2:1,host3:1")
	j.await(`is rank 2 of 3`) // hosts may come one after the other
	j.await(`batch 20$`)
	for _, other := range []int{2, 3} {
		if err := c.Host(1).Mute(c.Host(other)); err != nil {
			t.Fatal(err)
		}
		if err := c.Host(other).Mute(c.Host(1)); err != nil {
			t.Fatal(err)
		}
	}
	j.await(`gorun: host1 is lost: `)
	j.await(`is rank \d of 2 from batch [1-9]`)
	j.enough()
	j.end(2)
	if j.out.has(`gorun: host[23] is lost: `) {
		t.Errorf("a host was lost that was not cut off\n%s", j.out)
	}
}
