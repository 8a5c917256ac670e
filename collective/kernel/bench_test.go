package kernel_test

import (
	"fmt"
	"testing"

	"gorun/collective/kernel"
	"gorun/contrib/must"
)

// Bytes per second are bytes of one buffer: a sum of two moves three of them, or four when the CPU reads
// lines before it overwrites them, a copy two or three.
func BenchmarkReduce(b *testing.B) {
	types := []kernel.Type{kernel.Float32, kernel.Float64, kernel.Float16, kernel.BFloat16, kernel.Int32, kernel.Int64}
	for _, size := range []int{16 << 10, 1 << 20, 64 << 20} {
		x, y, z, w := filled(size), filled(size), filled(size), filled(size)
		name := fmt.Sprintf("%dKiB", size>>10)
		b.Run("memcpy/"+name, func(b *testing.B) {
			b.SetBytes(int64(size))
			for b.Loop() {
				copy(z, x)
			}
		})
		for _, typ := range types {
			p := kernel.Plan{Type: typ, Op: kernel.Sum, Pre: 1, Post: 1}
			run := func(name string, p kernel.Plan, dsts [][]byte) {
				b.Run(name, func(b *testing.B) {
					b.ReportAllocs()
					b.SetBytes(int64(size))
					for b.Loop() {
						p.Reduce(dsts, x, [][]byte{y})
					}
				})
			}
			run(fmt.Sprintf("%s/%s/1", typ, name), p, [][]byte{z})
			run(fmt.Sprintf("%s/%s/2", typ, name), p, [][]byte{z, w})
			if size > 32<<20 {
				p.NonTemporal = true
				run(fmt.Sprintf("%s/%s/1nt", typ, name), p, [][]byte{z})
			}
		}
	}
}

// BenchmarkLevels shows what the assembly is worth.
func BenchmarkLevels(b *testing.B) {
	const size = 256 << 10
	x, y, z := filled(size), filled(size), filled(size)
	for _, level := range levels(b) {
		for _, typ := range allTypes {
			for _, op := range []kernel.Op{kernel.Sum, kernel.Max} {
				p := kernel.Plan{Type: typ, Op: op, Pre: 1, Post: 1}
				if p.Check() != nil {
					continue
				}
				b.Run(fmt.Sprintf("%s/%s/%s", level, typ, op), func(b *testing.B) {
					restore, err := kernel.Force(level)
					must.Do(b, err)
					defer restore()
					b.SetBytes(size)
					for b.Loop() {
						p.Reduce([][]byte{z}, nil, [][]byte{x, y})
					}
				})
			}
		}
	}
}

func filled(size int) []byte {
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(i)*7&0x3f + 1 // no float of any type is a denormal or NaN
	}
	return b
}
