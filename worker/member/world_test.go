package member_test

import (
	"strings"
	"testing"

	"gorun/contrib/must"
	"gorun/rendezvous/wire"
	"gorun/worker/member"
)

// TestNonsenseRoster: what the launcher sends is checked before it indexes anything.
func TestNonsenseRoster(t *testing.T) {
	good := func() *wire.Roster {
		return &wire.Roster{Epoch: 1, Size: 3, Peers: []wire.Peer{{ID: 4, Ranks: []int{0, 2}}, {ID: 9, Name: "b", Ranks: []int{1}}},
			Ranks: []wire.Rank{{Process: 7, Rank: 0}, {Process: 8, Rank: 2}}}
	}
	must.Do(t, member.Check(good(), 4, "a"))
	for _, tc := range []struct {
		name  string
		spoil func(*wire.Roster)
		want  string
	}{
		{"no ranks", func(r *wire.Roster) { r.Size = 0 }, "check roster of epoch 1: 0 ranks on 2 hosts"},
		{"too many ranks", func(r *wire.Roster) { r.Size = 1 << 30 }, "ranks on 2 hosts"},
		{"without this host", func(r *wire.Roster) { r.Peers[0].ID = 5 }, ""},
		{"rank too high", func(r *wire.Roster) { r.Peers[1].Ranks[0] = 3 }, "check roster of epoch 1: rank 3 of host b"},
		{"negative rank", func(r *wire.Roster) { r.Peers[1].Ranks[0] = -1 }, "rank -1 of host "},
		{"rank twice", func(r *wire.Roster) { r.Peers[1].Ranks[0] = 0 }, "rank 0 of host "},
		{"a process too few", func(r *wire.Roster) { r.Ranks = r.Ranks[:1] }, "check roster of epoch 1: host a has 2 ranks there and 1 processes"},
		{"a process twice", func(r *wire.Roster) { r.Ranks[1].Process = 7 }, "check roster of epoch 1: process 7 as rank 2 of host a"},
		{"a negative process", func(r *wire.Roster) { r.Ranks[1].Process = -1 }, "process -1 as rank 2"},
		{"a spare that is a rank", func(r *wire.Roster) { r.Spares = []wire.Rank{{Process: 8}} }, "check roster of epoch 1: spare process 8 of host a"},
		{"another's rank", func(r *wire.Roster) { r.Ranks[1].Rank = 1 }, "process 8 as rank 1"},
	} {
		r := good()
		tc.spoil(r)
		if err := member.Check(r, 4, "a"); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.want)
		}
	}
}
