package crc32c_test

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"testing"

	"gorun/collective/crc32c"
)

var noise = func() []byte {
	p := make([]byte, 1<<20)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := 0; i < len(p); i += 8 {
		binary.LittleEndian.PutUint64(p[i:], rng.Uint64())
	}
	return p
}()

// TestSum compares with hash/crc32, at all lengths around those at which another loop takes over, at any address, and
// in pieces.
func TestSum(t *testing.T) {
	table := crc32.MakeTable(crc32.Castagnoli)
	if got := crc32c.Sum([]byte("123456789")); got != 0xe3069283 {
		t.Errorf("got %#x, and the polynomial is known to give 0xe3069283", got)
	}
	for n := 0; n < 3000; n++ {
		p := noise[n%64:][:n]
		if got, want := crc32c.Sum(p), crc32.Checksum(p, table); got != want {
			t.Fatalf("%d bytes: got %#x, want %#x", n, got, want)
		}
	}
	want := crc32.Checksum(noise, table)
	for cut := 0; cut <= len(noise); cut += 9973 {
		if got := crc32c.Update(crc32c.Sum(noise[:cut]), noise[cut:]); got != want {
			t.Errorf("cut after %d bytes: got %#x, want %#x", cut, got, want)
		}
	}
}

// TestSwappedWords: the damage that TCP's own checksum cannot see changes this one.
func TestSwappedWords(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	p := append([]byte(nil), noise[:4<<10]...)
	good := crc32c.Sum(p)
	for range 10_000 {
		i, j := 2*rng.IntN(len(p)/2), 2*rng.IntN(len(p)/2)
		a, b := binary.LittleEndian.Uint16(p[i:]), binary.LittleEndian.Uint16(p[j:])
		if a == b {
			continue
		}
		binary.LittleEndian.PutUint16(p[i:], b)
		binary.LittleEndian.PutUint16(p[j:], a)
		if crc32c.Sum(p) == good {
			t.Fatalf("words at %d and %d have changed places, and the checksum is the same", i, j)
		}
		binary.LittleEndian.PutUint16(p[i:], a)
		binary.LittleEndian.PutUint16(p[j:], b)
	}
}

func BenchmarkSum(b *testing.B) {
	for _, n := range []int{64, 1 << 10, 64 << 10, 512 << 10} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.SetBytes(int64(n))
			for b.Loop() {
				crc32c.Sum(noise[:n])
			}
		})
	}
}
