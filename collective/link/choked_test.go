package link

import (
	"testing"
	"time"

	"gorun/contrib/must"
)

// TestChoked: only streams that came up after others were stuck, and carried nothing themselves, show that large
// packets are lost; an outage, a slow peer or a stream that has carried something do not.
func TestChoked(t *testing.T) {
	begin := time.Now()
	at := func(s int) time.Time { return begin.Add(time.Duration(s) * time.Second) }
	large := pathState{again: true, packet: 9000}
	stuck := func(since int, progress uint64, w pathState) *slot {
		return &slot{since: at(since), stream: &stream{progress: progress, pathState: w}}
	}
	for name, tc := range map[string]struct {
		slots []*slot // each is stuck a second after the one before, from second 10 on
		sure  bool
	}{
		"two in a row":            {[]*slot{stuck(0, 0, large), stuck(11, 0, large)}, true},
		"both from before":        {[]*slot{stuck(0, 0, large), stuck(1, 0, large)}, false},
		"one":                     {[]*slot{stuck(0, 0, large)}, false},
		"the second carried some": {[]*slot{stuck(0, 0, large), stuck(11, 3, large)}, false},
		"the peer answers":        {[]*slot{stuck(0, 0, large), stuck(11, 0, pathState{packet: 9000})}, false},
	} {
		var c choked
		for i, sl := range tc.slots {
			c.note(sl, at(10+i))
		}
		if c.sure() != tc.sure || tc.sure && c.bytes != 9000 {
			t.Errorf("%s: %+v", name, c)
		}
	}
}

// TestNarrower: a link goes on with packets smaller than the lost ones, as long as there is such a size.
func TestNarrower(t *testing.T) {
	for lost, want := range map[int]int{9000: 1280, 1500: 1280, 1281: 1280, 1280: 576, 1200: 576, 577: 576, 576: 0, 400: 0} {
		if got := narrower(lost); got != want {
			t.Errorf("%d bytes are lost: goes on with %d, want %d", lost, got, want)
		}
	}
}

// TestBlockedNoLonger: a link is blocked until the peer has all that was under way then, however small its segments
// are.
func TestBlockedNoLonger(t *testing.T) {
	m, err := NewMesh(Config{Key: make([]byte, 32), Handler: struct{ Handler }{}})
	must.Do(t, err)
	l := newLink(m, 1, 1)
	defer l.cancel()
	send := func() { l.out.win.add(&Segment{state: segmentState{wire: make([]byte, 600)}}) }
	for range 3 {
		send()
	}
	l.width.narrow, l.width.choked = narrowPackets[len(narrowPackets)-1], choked{times: 2, bytes: 1500}
	l.goNarrow()
	send()
	var done queue
	for base := range uint64(3) {
		if err := l.acknowledge(base, nil, &done); err != nil || l.width.blocked.IsZero() {
			t.Errorf("the peer has %d of 3: blocked is %v, %v", base, l.width.blocked, err)
		}
	}
	if err := l.acknowledge(3, nil, &done); err != nil || !l.width.blocked.IsZero() {
		t.Errorf("the peer has all 3: still blocked, %v", err)
	}
}
