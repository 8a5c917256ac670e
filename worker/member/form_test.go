package member

import (
	"context"
	"fmt"
	"testing"

	"gorun/rendezvous/wire"
	"gorun/worker/loop"
)

// TestUnknownHost: a world with a host that no roster names is refused.
func TestUnknownHost(t *testing.T) {
	m := New(Config{Component: loop.Component{Job: &wire.Job{}}})
	defer m.Close()
	m.roster = &wire.Roster{}
	const want = "enter world of epoch 3: no host has id 7"
	if _, err := m.worldOf(wire.World{Epoch: 3, Order: []int{7}}); err == nil || err.Error() != want {
		t.Errorf("%v, want %q", err, want)
	}
}

// calls notes what is asked of a daemon that is to have spares only.
type calls struct {
	Daemon
	said string
}

func (c *calls) Admit(*wire.Roster) error { return nil }

func (c *calls) RosterChanged(context.Context, *wire.Roster) { c.said += "roster " }

func (c *calls) Expect(uint32, []int) {}

func (c *calls) SparesChanged(_ context.Context, r *wire.Roster) error {
	c.said += fmt.Sprint("spare ", r.Spares[0].Process, " ")
	return nil
}

// TestSparesOfRoster: spares of a roster are started if they do not run, because no launcher may have told of them before.
func TestSparesOfRoster(t *testing.T) {
	c := &calls{}
	m := New(Config{Component: loop.Component{Job: &wire.Job{HostID: 1, Name: "b"}}, Daemon: c})
	defer m.Close()
	r := &wire.Roster{Epoch: 2, Size: 1, Peers: []wire.Peer{{Name: "a", Ranks: []int{0}}}, Spares: []wire.Rank{{Process: 3}}}
	m.Join(t.Context(), r)
	if want := "roster spare 3 "; c.said != want {
		t.Errorf("the daemon hears %q, want %q", c.said, want)
	}
}
