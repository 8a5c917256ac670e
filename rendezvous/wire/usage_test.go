package wire_test

import (
	"testing"

	"gorun/rendezvous/wire"
)

func TestDescribeSplits(t *testing.T) {
	each := &wire.Split{Elapsed: 100e6, Steps: 100, Data: 22e6, Others: 8e6, Communication: 9e6, Hidden: 14e6, Operations: 500}
	for want, all := range map[string][]*wire.Split{
		"100 steps of 1s: computing 61 %, data 22 %, communication 9 % (and 14 % hidden behind it), waiting for other ranks 8 %": {each, nil, each},
		"computing 50 %, data 0 %, communication 50 %, waiting for other ranks 0 %":                                              {{Elapsed: 10, Communication: 5, Operations: 1}},
		"": {nil, {Elapsed: 10}},
	} {
		if got := wire.DescribeSplits(all); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// TestDoes: a rank does one thing, in words that do not contradict each other.
func TestDoes(t *testing.T) {
	waits, computes := &wire.Split{Activity: "waits for an operation", For: 12e6}, &wire.Split{Activity: "computes", For: 2e3}
	for _, c := range []struct {
		split       *wire.Split
		state, want string
	}{
		{nil, "is computing", "is computing"},
		{waits, "is computing", "waits for an operation for 12s"}, // it spins
		{waits, "waits for data from a process of this host", "waits for an operation for 12s"},
		{waits, "is paused by a signal", "is paused by a signal"},
		{computes, "runs", "computes"},
		{computes, "waits for another thread", "computes"},
		{computes, "waits for a disk", "waits for a disk"},
		{computes, "is stuck in the kernel (disk or network file system?)", "is stuck in the kernel (disk or network file system?)"},
	} {
		if got := c.split.Does(c.state); got != c.want {
			t.Errorf("%v, %q: %q, want %q", c.split, c.state, got, c.want)
		}
	}
}
