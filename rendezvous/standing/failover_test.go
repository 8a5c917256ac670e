package standing_test

import (
	"errors"
	"sync/atomic"
	"testing"

	"gorun/rendezvous/authority"
	"gorun/rendezvous/standing"
	"gorun/rendezvous/wire"
)

// disk is what a host saves for jobs, unless it is full. No launcher begins there.
type disk struct {
	full     atomic.Bool
	returned atomic.Int32
}

func (d *disk) Load() ([]authority.State, error) { return []authority.State{{Job: "cd"}}, nil }

func (d *disk) Save(authority.State) error {
	if d.full.Load() {
		return errors.New("no space left on device")
	}
	return nil
}

func (d *disk) HasLauncher(authority.State) bool             { return false }
func (d *disk) TakeOver(authority.State, authority.Snapshot) {}
func (d *disk) QuorumLost(authority.State, int) error        { return nil }
func (d *disk) QuorumBack(authority.State) error             { d.returned.Add(1); return nil }

// TestFullDisk: an elector that cannot save once reports it, and forgets nothing of what it has saved before: it takes
// no launcher that another one has followed, and goes on with that one when it can save again. What it reported of a
// job that it knew when it began is taken back, once, when its launcher is heard.
func TestFullDisk(t *testing.T) {
	heirs := &disk{}
	c := startWith(t, "127.0.0.1:0", standing.Config{Name: "c", Failover: heirs})
	keep := func(term, seq uint64, holder string) (*wire.Kept, error) {
		return client.Keep(t.Context(), c.addr, &wire.Keep{Job: "ab", Term: term, Seq: seq, Holder: holder,
			Electors: []string{"a", "b", "c"}, LeaseMS: 60000, Value: []byte("v")})
	}
	expect := func(term, seq uint64, holder string, want wire.Kept) {
		t.Helper()
		if kept, err := keep(term, seq, holder); err != nil || *kept != want {
			t.Errorf("term %d, value %d: %+v %v, want %+v", term, seq, kept, err, want)
		}
	}
	expect(1, 1, "a", wire.Kept{Term: 1, Seq: 1})
	expect(2, 2, "b", wire.Kept{Term: 2, Seq: 2})
	heirs.full.Store(true)
	var refused *standing.RefusedError
	if kept, err := keep(2, 3, "b"); !errors.As(err, &refused) {
		t.Errorf("%+v %v, want a refusal", kept, err)
	}
	heirs.full.Store(false)
	expect(1, 2, "a", wire.Kept{Term: 2})
	expect(2, 3, "b", wire.Kept{Term: 2, Seq: 3})
	if n := heirs.returned.Load(); n != 0 {
		t.Errorf("%d jobs are heard of again that were never lost", n)
	}
	for range 2 {
		if _, err := client.Keep(t.Context(), c.addr, &wire.Keep{Job: "cd", Term: 1, Holder: "a", LeaseMS: 60000}); err != nil {
			t.Error(err)
		}
	}
	if n := heirs.returned.Load(); n != 1 {
		t.Errorf("a job is heard of again %d times", n)
	}
}
