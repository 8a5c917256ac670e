package collective

import (
	"errors"
	"strings"
	"testing"

	"gorun/collective/schedule"
	"gorun/contrib/must"
)

// A host that sends a part of another size is not of this job: every rank hears of it, and nothing
// is added up.
func TestInlineContributionsMustFit(t *testing.T) {
	for _, sent := range []int{3, 8} {
		e := New(Config{Transport: nowhere{}})
		must.Do(t, e.SetWorld(twoHosts))
		var heard tally
		for _, rank := range twoHosts.Hosts[twoHosts.Self].Ranks {
			r := part("x")
			r.Client, r.In, r.Out = &heard, make([]byte, 4), make([]byte, 4)
			must.Do(t, e.Submit(rank, *r))
		}
		msg := appendReady(nil, 0, 0, []Request{*part("x")}, []int{2})
		msg[inlineAt] = byte(sent)
		e.mu.Lock()
		err := e.negotiation.hear(20, append(msg, make([]byte, sent)...))
		todo := e.drain(nil)
		e.mu.Unlock()
		must.Do(t, err)
		e.follow(todo)
		var failed *Error
		if len(heard) != 2 || !errors.As(heard[0].Err, &failed) || failed.Code != CodeInternal || !strings.Contains(failed.Text, "bytes with its ready message") {
			t.Errorf("%d bytes instead of 4: ranks heard %+v", sent, heard)
		}
	}
}

// Parts travel with ready messages where that is faster than anything after them, and never if an algorithm
// is forced.
func TestWhatIsInline(t *testing.T) {
	slow := schedule.Cost{Alpha: 30e-6, Beta: 0.8e-9, Gap: 3e-6}
	for _, c := range []struct {
		by           schedule.Algorithm
		n            int64
		ranks, hosts int
		want         bool
	}{
		{schedule.Auto, 4, 1, 2, true}, {schedule.Auto, 0, 1, 2, false}, {schedule.ByRing, 4, 1, 2, false},
		{schedule.Auto, 64 << 10, 1, 2, true}, {schedule.Auto, 256<<10 + 64, 1, 2, false},
		{schedule.Auto, 64 << 10, 4, 2, true}, {schedule.Auto, 64 << 10, 8, 2, false}, {schedule.Auto, alwaysInline, 256, 2, true},
		{schedule.Auto, 4, 1, 4096, true}, {schedule.Auto, alwaysInline, 1, 4096, false},
	} {
		e := New(Config{Transport: nowhere{}, Algorithm: c.by, Cost: slow})
		e.cost = slow
		if got := e.mayInline(c.n, c.ranks, c.hosts); got != c.want {
			t.Errorf("%s, %d bytes of %d ranks, %d hosts: inline %v", c.by, c.n, c.ranks, c.hosts, got)
		}
	}
}
