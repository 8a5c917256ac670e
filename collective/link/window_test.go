package link

import (
	"math/rand/v2"
	"testing"
)

// model is a receiveWindow that is plainly right.
type model struct {
	base uint64
	got  map[uint64]bool
}

func (m *model) add(seq uint64) {
	m.got[seq] = true
	for m.got[m.base] {
		m.base++
	}
}

func compare(t *testing.T, w *receiveWindow, m *model) {
	t.Helper()
	if w.base != m.base {
		t.Fatalf("base %d, want %d", w.base, m.base)
	}
	bitmap := w.appendMap(nil)
	if len(bitmap) != mapBytes {
		t.Fatalf("map of %d bytes", len(bitmap))
	}
	beyond := false
	for i := range uint64(span) {
		want := m.got[m.base+i]
		if got := bitmap[i/8]>>(i%8)&1 != 0; got != want {
			t.Fatalf("map says %v for %d+%d", got, m.base, i)
		}
		if got, err := w.has(m.base + i); got != want || err != nil {
			t.Fatalf("has %d+%d: %v, %v", m.base, i, got, err)
		}
		if i >= 1 && i <= 32 {
			if got := w.sack()>>(i-1)&1 != 0; got != want {
				t.Fatalf("sack %#x, but %d+%d is %v", w.sack(), m.base, i, want)
			}
		}
		beyond = beyond || want && i > 32
	}
	if w.beyond() != beyond {
		t.Fatalf("beyond %v, want %v", w.beyond(), beyond)
	}
	if _, err := w.has(m.base + span); err == nil {
		t.Fatal("a number beyond the window is taken")
	}
	if m.base > 0 {
		if got, err := w.has(m.base - 1); !got || err != nil {
			t.Fatal("the past is forgotten")
		}
	}
}

func TestReceiveWindow(t *testing.T) {
	for _, disorder := range []uint64{1, 2, 33, 64, 65, 500, span} {
		rng := rand.New(rand.NewPCG(disorder, 0))
		var w receiveWindow
		m := model{got: map[uint64]bool{}}
		for i := range 6 * span {
			seq := m.base + rng.Uint64N(disorder)
			if rng.IntN(3) == 0 {
				seq = m.base
			}
			if m.got[seq] {
				continue
			}
			w.add(seq)
			m.add(seq)
			if i%997 == 0 {
				compare(t, &w, &m)
			}
		}
		compare(t, &w, &m)
	}
}

// All of the window in reverse: the first number comes last and moves the base by the whole span.
func TestReceiveWindowInReverse(t *testing.T) {
	var w receiveWindow
	m := model{got: map[uint64]bool{}}
	for seq := uint64(span); seq > 0; seq-- {
		w.add(seq - 1)
		m.add(seq - 1)
	}
	compare(t, &w, &m)
	if w.bits != [span / 64]uint64{} {
		t.Error("bits are left")
	}
}

func FuzzReceiveWindow(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3})
	f.Add([]byte{255, 128, 64, 0, 0, 0})
	f.Fuzz(func(t *testing.T, steps []byte) {
		var w receiveWindow
		m := model{got: map[uint64]bool{}}
		for _, b := range steps {
			seq := m.base + uint64(b)*uint64(b)/16 // 0 to 4064
			if m.got[seq] {
				continue
			}
			w.add(seq)
			m.add(seq)
		}
		compare(t, &w, &m)
	})
}

func TestSendWindow(t *testing.T) {
	var w sendWindow
	segs := make([]Segment, 3*span)
	taken := 0
	for i := range segs {
		if w.next-w.base == span {
			if s := w.take(w.base); s == nil || s.state.seq != w.base {
				t.Fatal("the oldest is not there")
			}
			taken++
			w.slide()
		}
		w.add(&segs[i])
		if i%3 == 0 {
			if w.take(uint64(i)) != &segs[i] {
				t.Fatal("the newest is not there")
			}
			taken++
			w.slide()
		}
	}
	if w.take(w.next) != nil || w.take(0) != nil || w.take(^uint64(0)) != nil {
		t.Error("took what is not in the window")
	}
	held := 0
	last := uint64(0)
	w.each(func(s *Segment) {
		if held++; s.state.seq < last {
			t.Error("out of order")
		}
		last = s.state.seq
	})
	if held != w.held || held+taken != len(segs) {
		t.Errorf("%d held, %d counted, %d taken of %d", held, w.held, taken, len(segs))
	}
}

func TestAcknowledgeOfWhatWasNotSent(t *testing.T) {
	l := &link{mesh: &Mesh{window: span}, slots: []*slot{{}}}
	l.out.win.add(&Segment{})
	var done queue
	if err := l.acknowledge(2, nil, &done); err == nil {
		t.Error("accepted")
	}
	if err := l.acknowledge(1, []uint64{^uint64(0)}, &done); err != nil || done.n != 1 {
		t.Errorf("%v, %d done", err, done.n)
	}
}
