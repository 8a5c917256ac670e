package session_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"gorun/collective"
	"gorun/collective/kernel"
	"gorun/worker/rank"
	"gorun/worker/session/codec"
)

// onBelt is an allreduce of floats in ordinary memory, in place or not.
type onBelt struct {
	op      rank.Operation
	in, out []byte
}

func newOnBelt(name string, n int, apart bool) *onBelt {
	b := &onBelt{in: make([]byte, 4*n)}
	if b.out = b.in; apart {
		b.out = make([]byte, 4*n)
	}
	b.op = rank.Operation{Kind: collective.Allreduce, Name: name, Type: kernel.Float32, Op: kernel.Sum, Shape: []int{n},
		In: rank.Ordinary(b.in), Out: rank.Ordinary(b.out)}
	return b
}

// sum does the operation and checks every element.
func (b *onBelt) sum(r *rank.Session, round int) error {
	for i := range len(b.in) / 4 {
		binary.LittleEndian.PutUint32(b.in[4*i:], math.Float32bits(float32((i%1000+round)*(r.Welcome.Rank+1))))
	}
	if _, err := r.Do(&b.op); err != nil {
		return err
	}
	size := r.Welcome.Size
	for i := range len(b.out) / 4 {
		got, want := math.Float32frombits(binary.LittleEndian.Uint32(b.out[4*i:])), float32((i%1000+round)*size*(size+1)/2)
		if got != want {
			return fmt.Errorf("%s of round %d: element %d is %v, want %v", b.op.Name, round, i, got, want)
		}
	}
	return nil
}

// Tensors in ordinary memory go over the belt from the second time on, of any size, in any order, also among others.
func TestRankUsesBelt(t *testing.T) {
	for _, size := range []int{2, 3, 5} {
		h, engine := startCounted(t, size)
		sizes := []int{16, codec.MaxSlotBytes/4 + 1, codec.BeltPart / 4, codec.BeltPart/4 + 1, codec.BeltPart + 5,
			3*codec.BeltPart + 77}
		ranks(t, h, func(r *rank.Session) error {
			var all []*onBelt
			for i, n := range sizes {
				all = append(all, newOnBelt(fmt.Sprint(n), n, i%2 == 1))
			}
			shared, err := newVector(r, "shared", 4096)
			if err != nil {
				return err
			}
			for round := range 6 {
				for _, b := range all {
					if err := b.sum(r, round); err != nil {
						return err
					}
				}
				if _, err := r.Do(&shared.op); err != nil {
					return err
				}
			}
			return nil
		})
		for _, n := range sizes {
			if got := engine.of(fmt.Sprint(n)); got != size {
				t.Errorf("%d ranks: %d parts of %d elements came to the engine, want the first use alone", size, got, n)
			}
		}
	}
}

// A rank that ends amid a tensor, or gives up, fails it for the others, with its number; nothing goes over the belt then.
// Counts that no sound rank has lead nowhere else.
func TestRankEndsOnBelt(t *testing.T) {
	const n = 4 * codec.BeltPart  // elements, of 16 parts
	ring := func(c *slotClient) { // wakes rank 0
		name := c.slots[codec.SlotDoorbell+1:][:c.slots[codec.SlotDoorbell]]
		if err := unix.Sendto(c.doorbell(), nil, 0, &unix.SockaddrUnix{Name: "@" + string(name[1:])}); err != nil {
			c.t.Error(err)
		}
	}
	for name, end := range map[string]func(c *slotClient, area []byte){
		"killed": func(c *slotClient, _ []byte) { c.close() },
		"gave up": func(c *slotClient, area []byte) {
			atomic.StoreUint32((*uint32)(unsafe.Pointer(&area[codec.BeltBroken])), codec.BeltLeft)
			ring(c)
		},
		"nonsense": func(c *slotClient, area []byte) {
			atomic.StoreUint64((*uint64)(unsafe.Pointer(&area[codec.BeltFilled])), math.MaxUint64)
			c.close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			h, _ := startCounted(t, 2)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // nothing here may hang
			defer cancel()
			results := make(chan error)
			go func() {
				r, err := rank.Join(ctx, h.name, 0, token(0))
				if err != nil {
					results <- err
					return
				}
				b := newOnBelt("x", n, false)
				for range 2 {
					_, err := r.Do(&b.op)
					results <- err
				}
			}()
			other := joinSlots(t, h, 1)
			other.region, other.memory = other.alloc(4 * n)
			o := allreduce(7, other.region, n, "x")
			m := o.encode()
			m[8], m[11] = m[8]|0x80, m[11]|0x40
			other.send(m)
			at := other.slot()
			if at%64 != codec.BeltSlot {
				t.Fatalf("slot at %d, want one on the belt", at)
			}
			if err := <-results; err != nil {
				t.Fatal(err)
			}
			area := other.slots[codec.SlotsBytes+codec.BeltArea:]
			atomic.StoreUint64(other.word(at-codec.BeltSlot+64), 2)
			atomic.StoreUint64((*uint64)(unsafe.Pointer(&area[codec.BeltFilled])), 1) // one part, and no more
			ring(other)
			eventually(t, "the first share", func() bool {
				return atomic.LoadUint64((*uint64)(unsafe.Pointer(&other.slots[codec.SlotsBytes+codec.BeltReduced]))) == 1
			})
			end(other, area)
			var failure *collective.Error
			err := <-results
			if !errors.As(err, &failure) || failure.Code != collective.CodeAborted || !strings.Contains(failure.Text, "rank 1 of this host ended") {
				t.Errorf("the other rank ended: %v", err)
			}
		})
	}
}

// doorbell returns a socket on which to ring others.
func (c *slotClient) doorbell() int {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// An ordinary tensor cannot be in flight: it may be gone by then.
func TestRankStartsNoOrdinaryTensor(t *testing.T) {
	h, _ := startCounted(t, 2)
	ranks(t, h, func(r *rank.Session) error {
		b := newOnBelt("x", 8, false)
		if _, err := r.Submit(&b.op); err == nil || !strings.Contains(err.Error(), "ordinary memory") {
			return fmt.Errorf("submit of an ordinary tensor: %w", err)
		}
		return nil
	})
}
