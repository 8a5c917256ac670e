package flight_test

import (
	"testing"

	"gorun/collective/flight"
)

// TestPath: a path that loses packets in most seconds is one that loses packets; one burst is none, as a link that has
// become slow drops what is under way. The figures are of lab hosts: bytes that arrived and packets that were sent again
// in each second.
func TestPath(t *testing.T) {
	cable := [][2]uint64{{1752885, 13}, {2338648, 2}, {1369608, 27}, {1953581, 25}, {1165992, 24}, {0, 0}, {1423613, 24}}
	for name, tt := range map[string]struct {
		seconds [][2]uint64
		lasting bool
		packets uint64
	}{
		"nothing":          {nil, false, 0},
		"sound":            {[][2]uint64{{198441576, 0}, {146109855, 1}, {188875809, 46}, {180418669, 3}}, false, 0},
		"a bad cable":      {cable, true, 115},
		"at first":         {cable[:3], false, 42},
		"busy before":      {append([][2]uint64{{3 << 30, 0}, {3 << 30, 9}}, cable...), true, 115},
		"it became slow":   {[][2]uint64{{1798784, 262}, {2964749, 29}, {2384984, 0}, {2389941, 0}}, false, 291},
		"a frozen host":    {[][2]uint64{{9e7, 0}, {0, 3}, {0, 2}, {0, 4}, {0, 2}}, false, 0},
		"a while ago":      {append(cable[:7:7], make([][2]uint64, 40)...), false, 0},
		"nothing sent now": {append(cable[:7:7], make([][2]uint64, 20)...), true, 115},
		"repaired":         {append(cable[:4:4], [][2]uint64{{9e7, 0}, {9e7, 0}, {9e7, 1}, {9e7, 0}}...), false, 68},
	} {
		var p flight.Path
		at, acked, again := int64(5000), uint64(1<<30), uint64(7)
		p.Look(at, acked, again)
		for _, s := range tt.seconds {
			at, acked, again = at+1000, acked+s[0], again+s[1]
			p.Look(at, acked, again)
		}
		if l := p.Loss(); l.Lasting() != tt.lasting || l.Packets != tt.packets || l.Time > flight.Samples*1000 {
			t.Errorf("%s: %+v, want lasting %v, %d packets", name, l, tt.lasting, tt.packets)
		}
	}
	var p flight.Path
	p.Look(0, 1<<30, 1000)
	p.Look(1000, 4<<10, 3) // another connection
	if l := p.Loss(); l != (flight.Loss{}) {
		t.Errorf("counters that begin anew are %+v", l)
	}
}
