package worker

import (
	"os"
	"slices"
	"strings"
	"testing"

	"gorun/rendezvous/wire"
)

// TestSpareVariable: a rank's Python hears of the CPUs that are to spare by the name that it looks for.
func TestSpareVariable(t *testing.T) {
	d := &daemon{spare: [][]int{{4, 5, 12}, nil}}
	for slot, want := range [][]string{{"GORUN_SPARE_CPUS=4,5,12"}, nil, nil} { // the last is not bound at all
		if got := d.spareVariable(wire.Rank{LocalRank: slot}); !slices.Equal(got, want) {
			t.Errorf("slot %d: %q, should be %q", slot, got, want)
		}
	}
	reader, err := os.ReadFile("../contrib/python/gorun/spare.py")
	if err != nil || !strings.Contains(string(reader), `VARIABLE = "GORUN_SPARE_CPUS"`) {
		t.Errorf("the binding does not read it: %v", err)
	}
}
