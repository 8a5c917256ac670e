package session_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"gorun/collective"
	"gorun/collective/kernel"
	"gorun/contrib/must"
	"gorun/worker/rank"
	"gorun/worker/shm"
)

const wideN = 5000 // elements of float32: enough for a wide slot, and no whole number of slices

// Every reduction of slots, in place and not, in any world: the first use is the engine's, all others give the same
// bits.
func TestRankTakesWideSlot(t *testing.T) {
	types := []kernel.Type{kernel.Float32, kernel.Float64, kernel.Int32, kernel.Uint32, kernel.Int64, kernel.Uint64}
	for _, size := range []int{2, 3, 5, 16} {
		h, engine := startCounted(t, size)
		type use struct {
			name string
			op   rank.Operation
		}
		var uses []use
		for _, dtype := range types {
			for _, op := range []kernel.Op{kernel.Sum, kernel.Average} {
				for _, n := range []int{1024, wideN, 1 << 17} {
					if op == kernel.Average && dtype != kernel.Float32 && dtype != kernel.Float64 || size > 2 && n > wideN || size > 3 && dtype != kernel.Float32 {
						continue
					}
					uses = append(uses, use{fmt.Sprintf("%s.%s.%d", dtype, op, n), rank.Operation{Kind: collective.Allreduce, Type: dtype, Op: op, Shape: []int{n}}})
				}
			}
		}
		ranks(t, h, func(r member) {
			m := r.alloc(8 << 20)
			for _, apart := range []bool{false, true} {
				for _, u := range uses {
					n := u.op.Shape[0] * u.op.Type.Size()
					o := u.op
					o.Name = fmt.Sprintf("%s.%t", u.name, apart)
					o.In = rank.Piece{Memory: m, Offset: 64, Bytes: n}
					if o.Out = o.In; apart {
						o.Out.Offset = 4<<20 + 8 // on another line than In
					}
					var want []byte
					for round := range 3 {
						random := rand.New(rand.NewPCG(uint64(r.Welcome.Rank), 1))
						in := m.Bytes[o.In.Offset : o.In.Offset+n]
						for i := range in {
							in[i] = byte(random.Uint32())
						}
						r.do(&o)
						got := m.Bytes[o.Out.Offset : o.Out.Offset+n]
						switch {
						case round == 0:
							want = bytes.Clone(got)
						case !bytes.Equal(got, want):
							t.Errorf("%s: round %d is not what the engine makes of it", o.Name, round)
						}
					}
				}
			}
		})
		for _, u := range uses {
			for _, apart := range []bool{false, true} {
				if name := fmt.Sprintf("%s.%t", u.name, apart); engine.of(name) != size {
					t.Errorf("%d parts of %s came to the engine of %d ranks, want one of each", engine.of(name), name, size)
				}
			}
		}
	}
}

// Who brings a tensor in other memory, or does not wait for it at once, makes all go to the engine; they come back
// later.
func TestRankLeavesWideSlot(t *testing.T) {
	h, engine := startCounted(t, 3)
	ranks(t, h, func(r member) {
		var vs [2]*vector
		for i := range vs {
			vs[i] = r.vector("x", wideN)
		}
		sum := func(v *vector, stays bool) {
			v.set(func(i int) float32 { return float32(i) })
			if stays {
				r.do(&v.op)
			} else {
				r.wait(r.submit(&v.op))
			}
			r.must(v.check(func(i int) float32 { return 3 * float32(i) }))
		}
		for _, change := range []func(){
			func() { sum(vs[0], true) },
			func() { sum(vs[r.Welcome.Rank%2], true) },
			func() { sum(vs[0], r.Welcome.Rank != 1) },
		} {
			for range 4 {
				change()
				sum(vs[0], true)
				sum(vs[0], true)
			}
		}
	})
	if n := engine.of("x"); n < 3*6 || n > 3*22 {
		t.Errorf("%d parts came to the engine: want those of the first use and of changes, and few others", n)
	}
}

// When a rank frees memory, the others unmap it.
func TestFreedMemoryIsHidden(t *testing.T) {
	h, _ := startCounted(t, 2)
	most := 0
	ranks(t, h, func(r member) {
		for range 30 {
			v := r.vector("x", wideN)
			for range 3 {
				r.do(&v.op)
			}
			r.must(r.Free(v.at.Memory))
			r.do(&rank.Operation{Kind: collective.Barrier, Name: "freed"})
			if r.Welcome.Rank == 0 {
				maps, err := os.ReadFile("/proc/self/maps")
				r.must(err)
				most = max(most, strings.Count(string(maps), "gorun-arena"))
			}
		}
	})
	if most > 12 { // a rank may be some messages behind
		t.Errorf("%d mappings of memory that was freed", most)
	}
}

// wide is a world of two: a rank, and a client that does what it likes in a wide slot at once.
type wide struct {
	rank   *rank.Session
	vector *vector
	other  *slotClient
	at     uint64
	host   *host
}

func startWide(t *testing.T) *wide {
	t.Helper()
	h, _ := startCounted(t, 2)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // nothing here may hang
	t.Cleanup(cancel)
	joined := make(chan *rank.Session, 1)
	go func() {
		r, err := rank.Join(ctx, h.name, 0, token(0))
		if err != nil {
			t.Error(err)
		}
		joined <- r
	}()
	other := joinSlots(t, h, 1)
	w := &wide{rank: <-joined, other: other, host: h}
	t.Cleanup(func() { w.rank.Close() })
	var err error
	if w.vector, err = newVector(w.rank, "x", wideN); err != nil {
		t.Fatal(err)
	}
	first := make(chan error, 1)
	go func() { _, err := w.rank.Do(&w.vector.op); first <- err }()
	w.other.next++
	b := allreduce(w.other.next, w.other.region, wideN, "x").encode()
	b[8], b[11] = b[8]|0x80, b[11]|0x80
	w.other.send(b)
	if b, _ := w.other.expect(11); le.Uint32(b[4:]) != 0 || le.Uint64(b[16:]) < 4*wideN {
		t.Fatalf("shown memory of rank %d, %d bytes", le.Uint32(b[4:]), le.Uint64(b[16:]))
	}
	if w.at = w.other.slot(); w.at%64 != 1 {
		t.Fatalf("slot at %d, want a wide one", w.at)
	}
	w.at--
	must.Do(t, <-first)
	return w
}

// come makes the client come to the slot for the first use.
func (w *wide) come(region uint32, offset uint64) {
	line := w.other.slots[w.at+64:]
	le.PutUint32(line[16:], region)
	le.PutUint32(line[20:], region)
	le.PutUint64(line[24:], offset)
	le.PutUint64(line[32:], offset)
	atomic.StoreUint64(w.other.word(w.at+64), 2)
}

// A rank that came and dies before its slice is done leaves an error, and no hang.
func TestRankDiesInWideSlot(t *testing.T) {
	w := startWide(t)
	w.come(w.other.region, 0)
	ended := make(chan error, 1)
	go func() { _, err := w.rank.Do(&w.vector.op); ended <- err }()
	must.Soon(t, "the slice of the rank that lives", func() bool { return atomic.LoadUint64(w.other.word(w.at+8)) == 1 })
	now := time.Now()
	if stalls := w.host.server.Waiting(now); len(stalls) != 1 || stalls[0].Name != "x" || fmt.Sprint(stalls[0].Missing) != "[{ [1]}]" {
		t.Errorf("waiting: %+v", stalls)
	}
	w.other.close()
	var e *collective.Error
	if err := <-ended; !errors.As(err, &e) || e.Code != collective.CodeAborted || !strings.Contains(e.Text, "allreduce x") {
		t.Errorf("the other rank died: %v", err)
	}
}

// What a rank sends about its tensors is checked before any memory is touched.
func TestWideSlotNonsense(t *testing.T) {
	for name, place := range map[string]struct {
		region uint32
		offset uint64
	}{
		"region":    {99, 0},
		"end":       {1, (1<<20+shm.Granule-1)/shm.Granule*shm.Granule - 4*wideN + 4},
		"overflow":  {1, 1<<64 - 4},
		"alignment": {1, 2},
	} {
		w := startWide(t)
		if w.other.region != 1 {
			t.Fatalf("region %d", w.other.region)
		}
		w.come(place.region, place.offset)
		if _, err := w.rank.Do(&w.vector.op); err == nil || !strings.Contains(err.Error(), "tensor of rank 1") {
			t.Errorf("%s: %v", name, err)
		}
		w.other.close()
	}
}
