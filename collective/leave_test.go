package collective_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"gorun/collective"
	"gorun/collective/kernel"
	"gorun/collective/link"
	"gorun/contrib/must"
)

func TestLeave(t *testing.T) {
	each(t, worlds, func(t *testing.T, c *cluster, size int) {
		if size > 1 {
			lastLeaves(t, c)
		}
	})
}

// lastLeaves has the last rank leave, while others wait for it.
func lastLeaves(t *testing.T, c *cluster) {
	size := c.layout.size()
	c.allreduce("before", kernel.Int32, kernel.Sum, 1000, 1, 1)()
	leaver := size - 1
	var waiting []*promise
	for rank := range size {
		// The leaver takes part in neither; the first is known everywhere, the second hardly.
		if rank != leaver {
			waiting = append(waiting, c.submit(rank, collective.Request{Kind: collective.Barrier, Name: "everybody"}))
		}
		if rank == 0 {
			waiting = append(waiting, c.submit(rank, collective.Request{Kind: collective.Barrier, Name: "one"}))
		}
	}
	c.engine(leaver).Leave(1, leaver)
	c.engine(leaver).Leave(1, leaver)
	host := fmt.Sprintf("rank %d on host%d left", leaver, c.hostOf[leaver]+1)
	for _, p := range waiting {
		r := p.wait()
		if r.Err == nil || code(t, r.Err) != collective.CodeShutdown || !strings.Contains(r.Err.Error(), host) {
			t.Errorf("%s: %v", p.what, r.Err)
		}
	}
	// Ranks that come later fail at once.
	for rank := range size - 1 {
		must.Soon(t, "new operations are refused", func() bool {
			p, err := c.try(rank, collective.Request{Kind: collective.Barrier, Name: "later"})
			if err == nil { // the news is under way and will end it
				err = p.wait().Err
			}
			return err != nil && code(t, err) == collective.CodeShutdown && strings.Contains(err.Error(), host)
		})
	}
	for _, e := range c.engines {
		must.Soon(t, "no operation is open", func() bool { return len(e.Pending(epochStart)) == 0 })
	}
}

// What a host declared ready before its rank left ends well, however late the others are.
func TestLeaveAfterReady(t *testing.T) {
	each(t, worlds, func(t *testing.T, c *cluster, _ int) {
		if len(c.layout) < 3 {
			return
		}
		leaver := c.layout[0][0]
		const n = 3000
		sum := func(rank int) *promise {
			return c.submit(rank, sumIn(0, "x", make([]byte, n)))
		}
		var promises []*promise
		for _, rank := range c.layout[0] {
			promises = append(promises, sum(rank))
		}
		c.engines[0].Leave(1, leaver)
		must.Soon(t, "all hosts know that the rank left", c.mesh.idle)
		for _, ranks := range c.layout[1:] {
			for _, rank := range ranks {
				promises = append(promises, sum(rank))
			}
		}
		ended(promises...)
	})
}

func TestAbort(t *testing.T) {
	c := newCluster(t, even(3, 2), 14, collective.Config{Segment: 1024, Direct: -1})
	const n = 100_000
	// Data from host 3 does not come any more.
	c.mesh.setHold(func(from, _ int, h link.Header) bool { return from == 2 && h.Kind == link.Data })
	var promises []*promise
	for rank := range 6 {
		promises = append(promises, c.submit(rank, sumIn(0, "x", make([]byte, n))))
		if rank < 2 {
			promises = append(promises, c.submit(rank, barrier))
		}
	}
	must.Soon(t, "only host 3's data is under way", func() bool {
		c.mesh.mu.Lock()
		defer c.mesh.mu.Unlock()
		for k, e := range c.mesh.edges {
			if e.busy > 0 || k[0] != 2 && len(e.queue) > 0 {
				return false
			}
		}
		return len(c.mesh.edges[[2]int{2, 0}].queue) > 0
	})
	c.mesh.close()
	gone := &collective.Error{Code: collective.CodeAborted, Text: "host3 died"}
	for _, e := range c.engines {
		e.Abort(gone)
	}
	for _, p := range promises {
		if r := p.wait(); r.Err != gone {
			t.Errorf("%s: %v", p.what, r.Err)
		}
	}
	if _, err := c.try(0, barrier); err == nil || code(t, err) != collective.CodeAborted {
		t.Errorf("submit after abort: %v", err)
	}
	// The next epoch works, and has nothing of the last.
	e := c.engines[0]
	err := e.SetWorld(collective.EngineWorld{Epoch: 2, Hosts: []collective.HostRanks{{ID: 0, Name: "host1", Ranks: []int{0, 1}}}, Size: 2})
	must.Do(t, err)
	if _, err := e.Place(1, link.Header{Kind: link.Data, Epoch: 1, Length: 64}); err == nil {
		t.Error("a segment of the last epoch was placed")
	}
	ended(c.submit(0, barrier), c.submit(1, barrier))
}

// A rank whose memory the link keeps until a peer has it all gets its result when the world ends, although the
// peer never acknowledged: it may be the one that died. Result memory is given back, too.
func TestAbortAfterTheResult(t *testing.T) {
	var kept atomic.Int64
	c := newCluster(t, even(2, 1), 16, collective.Config{Segment: 20 << 10, Direct: -1, Alloc: counting{&kept}})
	c.mesh.setMute(true)
	const n = 100_000
	var sums, gathers []*promise
	for rank := range 2 {
		sums = append(sums, c.submit(rank, sumIn(0, "x", make([]byte, n))))
		gathers = append(gathers, c.submit(rank, gather(n)))
	}
	must.Soon(t, "all is under way, nothing is acknowledged", func() bool {
		return c.mesh.idle() && len(c.engines[0].Pending(epochStart))+len(c.engines[1].Pending(epochStart)) == 0
	})
	if sums[0].done() || sums[1].done() || kept.Load() == 0 {
		t.Fatal("nobody waits for the link: this shows nothing")
	}
	for _, e := range c.engines {
		e.Abort(&collective.Error{Code: collective.CodeAborted, Text: "the other host died"})
	}
	for _, p := range append(sums, gathers...) {
		if r := p.good(); r.Buffer != nil { // although the world ended: the result was there
			r.Buffer.Release()
		}
	}
	if n := kept.Load(); n != 0 {
		t.Errorf("%d times result memory is still in use", n)
	}
}
