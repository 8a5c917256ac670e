package mpi

import (
	"strconv"
	"testing"

	"gorun/rendezvous/wire"
)

// TestNames: a name is published once, found, and taken back; a job keeps only so many.
func TestNames(t *testing.T) {
	var n Names
	for i, step := range []struct {
		asks, service, port string
		ok                  bool
		found               string
	}{
		{wire.NameLookup, "a", "", false, ""},
		{wire.NameUnpublish, "a", "", false, ""},
		{wire.NamePublish, "a", "1", true, ""},
		{wire.NamePublish, "a", "2", false, "1"},
		{wire.NameLookup, "a", "", true, "1"},
		{wire.NameUnpublish, "a", "", true, "1"},
		{wire.NameLookup, "a", "", false, ""},
		{"steal", "a", "", false, ""},
	} {
		got := n.Answer(&wire.Name{Rank: 3, Asks: step.asks, Service: step.service, Port: step.port})
		if want := (wire.Name{Rank: 3, Asks: step.asks, Service: step.service, Port: step.found, OK: step.ok}); *got != want {
			t.Errorf("step %d: got %+v, want %+v", i, *got, want)
		}
	}
	for i := range mostNames + 1 {
		m := &wire.Name{Asks: wire.NamePublish, Service: strconv.Itoa(i), Port: "1"}
		if got, want := n.Answer(m).OK, i < mostNames; got != want {
			t.Fatalf("name %d: %v", i, got)
		}
	}
}
