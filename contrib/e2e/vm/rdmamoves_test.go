package vm

import (
	"path/filepath"
	"testing"
	"time"

	"gorun/contrib/e2e/e2etest"
	"gorun/contrib/lab"
	"gorun/contrib/must"
)

// TestAnnouncedMoveOverRDMA: before vSphere may move a host, none of its queue pairs is left, nor memory that a device
// knows; afterwards there are others. Training goes on all the while.
func TestAnnouncedMoveOverRDMA(t *testing.T) {
	if testing.Short() {
		t.Skip("a part of make test-all: short variants are in worker/moves, worker/network and collective/verbs")
	}
	s := e2etest.NewStandin(t)
	c := e2etest.NewClusterWith(t, 2, lab.Options{Share: []string{s.Dir}})
	v := vsphereOn(c)
	args := append(s.Flags(), "-v", "--vmtoolsd", filepath.Join(v.dir, "vmtoolsd"), "--min-np", "2", "-H", "host1:1,host2:1")
	j := c.TrainOn(args...)
	j.Await(`host2: vSphere announces moves of this machine`)
	j.Await(`batch 10$`)
	if left := s.LeftAt(c.Host(2).Address()); len(left) == 0 {
		t.Errorf("RDMA carries nothing:\n%s", j.Out)
	}
	v.tell("host2", "start", 7001, "")
	j.Await(`gorun: host2: ready to be moved, vSphere knows`)
	if left := s.LeftAt(c.Host(2).Address()); len(left) > 0 {
		t.Errorf("when the machine may be moved there are %v", left)
	}
	must.Do(t, c.Host(2).Freeze())
	time.Sleep(500 * time.Millisecond) // the move
	if left := s.LeftAt(c.Host(2).Address()); len(left) > 0 {
		t.Errorf("while the machine moves there are %v", left)
	}
	must.Do(t, c.Host(2).Thaw())
	v.tell("host2", "end", 7001, `,"opStatus":"success"`)
	j.Await(`gorun: host2 renews its connections: success`)
	c.Await("queue pairs after the move", func() bool { return s.Pairs() == 8 }) // four streams of the link, both ends
	j.EndNow(2)
	unbroken(j)
}
