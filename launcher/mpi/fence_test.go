package mpi

import (
	"reflect"
	"slices"
	"testing"

	"gorun/rendezvous/wire"
)

// TestFence: all pass when the last host has arrived, with what all published, and then the next fence begins. A host
// that arrives twice, or at another fence, is refused.
func TestFence(t *testing.T) {
	var f Fence
	arrive := func(host int, number uint64, key, value string) (*wire.Fence, error) {
		return f.Arrive(host, 2, &wire.Fence{Number: number, Pairs: map[string]string{key: value}})
	}
	for number := uint64(1); number < 4; number++ {
		if passed, err := arrive(1, number, "b", "2"); passed != nil || err != nil {
			t.Fatalf("the first: %v, %v", passed, err)
		}
		if _, err := arrive(1, number, "b", "2"); err == nil {
			t.Fatal("it arrives twice")
		}
		if _, err := arrive(0, number+1, "a", "1"); err == nil {
			t.Fatal("the other is ahead of it")
		}
		passed, err := arrive(0, number, "a", "1")
		if want := (&wire.Fence{Number: number, Pairs: map[string]string{"a": "1", "b": "2"}}); err != nil || !reflect.DeepEqual(passed, want) {
			t.Fatalf("the last: %v, %v", passed, err)
		}
	}
}

// TestFenceMissed: ranks of hosts that have arrived wait in vain if a rank has ended on one that has not.
func TestFenceMissed(t *testing.T) {
	at := []int{0, 1, 0, 1, 2}
	for name, tc := range map[string]struct {
		arrived, ended []int
		rank           int
		waiting        []int
		missed         bool
	}{
		"none waits":               {ended: []int{0, 1}},
		"all still run":            {arrived: []int{0}},
		"one ended after it":       {arrived: []int{0}, ended: []int{2}},
		"one ended before it":      {arrived: []int{0, 2}, ended: []int{2, 3}, rank: 3, waiting: []int{0, 2, 4}, missed: true},
		"several ended on a host":  {arrived: []int{2}, ended: []int{1, 3}, rank: 1, waiting: []int{4}, missed: true},
		"several ended on several": {arrived: []int{1}, ended: []int{0, 4}, rank: 0, waiting: []int{1, 3}, missed: true},
	} {
		var f Fence
		for _, host := range tc.arrived {
			if _, err := f.Arrive(host, 3, &wire.Fence{Number: 1}); err != nil {
				t.Fatal(err)
			}
		}
		rank, waiting, missed := f.Missed(tc.ended, at)
		if rank != tc.rank || !slices.Equal(waiting, tc.waiting) || missed != tc.missed {
			t.Errorf("%s: rank %d is missed by %v (%v), want rank %d by %v (%v)", name, rank, waiting, missed, tc.rank, tc.waiting, tc.missed)
		}
	}
}
