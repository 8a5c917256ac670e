package member

import (
	"testing"

	"gorun/rendezvous/wire"
)

// TestUnknownHost: a world with a host that no roster names is refused.
func TestUnknownHost(t *testing.T) {
	m := New(Config{Job: &wire.Job{}})
	defer m.Close()
	m.roster = &wire.Roster{}
	const want = "enter world of epoch 3: no host has id 7"
	if _, err := m.worldOf(wire.World{Epoch: 3, Order: []int{7}}); err == nil || err.Error() != want {
		t.Errorf("%v, want %q", err, want)
	}
}
