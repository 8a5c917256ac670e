package flight_test

import (
	"slices"
	"strings"
	"testing"
	"unsafe"

	"gorun/collective/flight"
)

func TestRing(t *testing.T) {
	r := flight.NewRing[int](4)
	if got := r.Latest(nil, 10); len(got) != 0 {
		t.Errorf("a new ring has %v", got)
	}
	for i := 1; i <= 6; i++ {
		r.Add(&i)
	}
	for most, want := range map[int][]int{10: {3, 4, 5, 6}, 2: {5, 6}, 0: nil, -1: nil} {
		if got := r.Latest(nil, most); !slices.Equal(got, want) {
			t.Errorf("the latest %d are %v, want %v", most, got, want)
		}
	}
	var none flight.Ring[int]
	one := 1
	if none.Add(&one); len(none.Latest(nil, 1)) != 0 {
		t.Error("a ring without room keeps something")
	}
}

// TestMemory: a daemon's recorder fits into 1 MiB.
func TestMemory(t *testing.T) {
	if n := flight.Operations*unsafe.Sizeof(flight.Operation{}) + flight.Links*unsafe.Sizeof(flight.Link{}); n > 1<<20 {
		t.Errorf("it has %d bytes", n)
	}
}

func TestName(t *testing.T) {
	long := "allreduce.encoder." + strings.Repeat("layers.", 20) + "weight"
	for name, want := range map[string]string{"": "", "a": "a", strings.Repeat("x", 48): strings.Repeat("x", 48),
		long: "allreduce.encode…" + long[len(long)-29:]} {
		var o flight.Operation
		if o.SetName(name); o.Name() != want {
			t.Errorf("%q is kept as %q, want %q", name, o.Name(), want)
		}
	}
}

func TestContributed(t *testing.T) {
	var o flight.Operation
	o.Contributed(5, 7, false)
	o.Contributed(6, 8, false)
	o.Contributed(9, 3, true)
	o.Heard(8, 2)
	o.Heard(11, 1)
	if o.First != 5 || o.FirstRank != 7 || o.Last != 9 || o.LastRank != 3 || o.Hosts != 11 || o.LastHost != 1 {
		t.Errorf("%+v", o)
	}
}
