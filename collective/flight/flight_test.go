package flight_test

import (
	"slices"
	"strings"
	"testing"
	"time"
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

// TestMemory: the recorder of a daemon with links to 256 hosts fits into 1 MiB.
func TestMemory(t *testing.T) {
	const peers = 256
	if n := flight.Operations*unsafe.Sizeof(flight.Operation{}) + flight.Links*unsafe.Sizeof(flight.Link{}) +
		peers*unsafe.Sizeof(flight.Path{}); n > 1<<20 {
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
	o.Contributed(5e6, 7, 1, false)
	o.Contributed(6e6, 8, 2, false)
	o.Contributed(9e6, 3, 0, true)
	o.Heard(8, 2)
	o.Heard(11, 1)
	if o.First != 5e6 || o.FirstRank != 7 || o.Last != 9e6 || o.LastRank != 3 || o.Hosts != 11 || o.LastHost != 1 {
		t.Errorf("%+v", o)
	}
	for place, want := range []time.Duration{4 * time.Millisecond, 0, time.Millisecond} {
		if got, ok := o.Came(place); !ok || got != want {
			t.Errorf("the rank of place %d came after %v, %v, want %v", place, got, ok, want)
		}
	}
	o.Contributed(9e6, 9, flight.Places, false)
	for _, place := range []int{3, flight.Places} {
		if got, ok := o.Came(place); ok {
			t.Errorf("the rank of place %d came after %v", place, got)
		}
	}
}
