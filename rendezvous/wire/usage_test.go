package wire_test

import (
	"testing"

	"gorun/rendezvous/wire"
)

func TestDescribeSplit(t *testing.T) {
	var total wire.Split
	for range 2 {
		total.Add(&wire.Split{Elapsed: 100e6, Steps: 100, Data: 22e6, Others: 8e6, Communication: 9e6, Hidden: 14e6, Operations: 500})
	}
	want := "100 steps of 1s: computing 61 %, data 22 %, communication 9 % (and 14 % hidden behind it), waiting for other ranks 8 %"
	if got := total.Describe(2); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	want = "computing 50 %, data 0 %, communication 50 %, waiting for other ranks 0 %"
	if got := (&wire.Split{Elapsed: 10, Communication: 5, Operations: 1}).Describe(1); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
