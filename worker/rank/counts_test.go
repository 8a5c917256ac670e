package rank

import (
	"os"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gorun/collective"
	"gorun/collective/kernel"
	"gorun/contrib/must"
	"gorun/worker/counters"
	"gorun/worker/session/codec"
)

// meetingOfTwo returns the session of a rank that meets another one, which the test plays, the operation to meet for,
// the slot, what the rank has counted, and a function that rings its doorbell.
func meetingOfTwo(t *testing.T) (*Session, *slot, *Operation, *counters.Page, func()) {
	t.Helper()
	page, err := counters.NewPage()
	must.Do(t, err)
	t.Cleanup(page.Close)
	w, err := counters.Open(page.Path())
	must.Do(t, err)
	t.Cleanup(w.Close)
	var doorbell, silence [2]int
	for _, p := range []*[2]int{&doorbell, &silence} {
		if err := unix.Pipe2(p[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
			t.Fatal(os.NewSyscallError("pipe2", err))
		}
		t.Cleanup(func() { unix.Close(p[0]); unix.Close(p[1]) })
	}
	const bytes = 8192
	m := &Memory{Bytes: make([]byte, bytes), region: 1}
	l := &slotTable{memory: make([]byte, codec.SlotsBytes), ranks: 2, doorbell: doorbell[0],
		seen: map[regionOf][]byte{{1, 7}: make([]byte, bytes)}}
	o := &Operation{Kind: collective.Allreduce, Name: "grad", Type: kernel.Float32, Op: kernel.Sum,
		Shape: []int{bytes / 4}, In: Piece{Memory: m, Bytes: bytes}, Out: Piece{Memory: m, Bytes: bytes}}
	x := &slot{state: slotTaken, at: 2 * codec.SlotLine}
	x.keep(o)
	s := &Session{slots: l, counts: w, fd: silence[0], in: make([]byte, 64)}
	return s, x, o, page, func() { unix.Write(doorbell[1], []byte{1}) }
}

// TestMeetingCounts: once all ranks have come, what a rank waits for is communication.
func TestMeetingCounts(t *testing.T) {
	const slow = 20 * time.Millisecond
	s, x, o, page, ring := meetingOfTwo(t)
	x.wide = true
	l := s.slots
	*l.word(x, 1) = 2 // it is there already,
	*field[uint32](l, x, 1, codec.WideIn) = 7
	*field[uint32](l, x, 1, codec.WideOut) = 7
	mine, others := field[uint64](l, x, 0, codec.SlotDone), field[uint64](l, x, 1, codec.SlotDone)
	go func() { // but slow at its share
		for i := 0; i < 10000 && atomic.LoadUint64(mine) == 0; i++ {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(slow)
		atomic.StoreUint64(others, 1)
		ring()
	}()
	if met, err := s.meet(x, o); !met || err != nil {
		t.Fatalf("%v, %v", met, err)
	}
	if got := page.Read(); got.Communication < slow || got.Operations != 1 || got.Activity != counters.Computing {
		t.Errorf("%+v", got)
	}
}

// TestMissedMeetingCounts: the daemon carries out the operation, and the wait for it counts it.
func TestMissedMeetingCounts(t *testing.T) {
	s, x, o, page, _ := meetingOfTwo(t)
	x.wide = true
	*s.slots.word(x, 1) = 1 // the other rank has given up the slot
	if met, err := s.meet(x, o); met || err != nil || x.state != slotOffered {
		t.Fatalf("%v, %v, state %d", met, err, x.state)
	}
	if got := page.Read(); got.Operations != 0 || got.Communication != 0 || got.Activity != counters.Computing {
		t.Errorf("%+v", got)
	}
}
