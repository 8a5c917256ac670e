package launcher

import (
	"testing"

	"gorun/rendezvous/wire"
)

func TestRankState(t *testing.T) {
	j := &job{
		hosts:   []*host{{id: 0, name: "a"}, {id: 1, name: "b"}, {id: 2, name: "c"}},
		up:      map[int]bool{0: true, 1: true},
		started: map[int]bool{0: true, 1: true, 3: true, 4: true, 5: true},
		exited:  map[int]bool{3: true},
		inspected: map[int]*wire.Inspected{0: {
			Ranks: []wire.RankState{{Process: 0, State: "sleeps"}},
			Waits: []wire.Wait{{Op: "allreduce x", Missing: []int{1, 4}, MS: 61000}, {Op: "barrier", MS: 10}},
		}},
	}
	for rank, tt := range []struct {
		host int
		want string
	}{
		{0, "sleeps; waits in allreduce x for ranks 1, 4, for 1m1s or longer; in barrier"},
		{0, "runs; has not called allreduce x, which others wait for, for 1m1s or longer; in barrier"},
		{0, "has not started"},
		{0, "has ended"},
		{1, "its host does not answer"},
		{2, "its host was not reached"},
	} {
		if got := j.rankState(rank, tt.host); got != tt.want {
			t.Errorf("rank %d: got %q, want %q", rank, got, tt.want)
		}
	}
	if got, want := rankList([]int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}), "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 2 more"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := rankList([]int{3}); got != "rank 3" {
		t.Errorf("got %q", got)
	}
}
