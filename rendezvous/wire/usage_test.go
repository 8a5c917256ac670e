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
