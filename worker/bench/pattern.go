package bench

import (
	"bytes"
	"encoding/binary"
	"math"

	"gorun/collective/kernel"
)

// period of the test data. It has no factor in common with the sizes of chunks, segments and vectors, so that a
// piece that lands in the wrong place shows; and data that repeats can be filled and compared in big blocks, which
// matters when a gigabyte is to be checked.
const period = 7

// block is how many elements are filled and compared at once.
const block = period * 4096

var le = binary.LittleEndian

// value is what a rank contributes at a place: small, so that sums are exact in all types, and different at every
// rank and at neighbouring places.
func (c *Config) value(rank, i int) float64 {
	v := (i % period) * (rank%(period-1) + 1) % period
	if c.Reduces() && c.Op == kernel.Product {
		// Few factors are not 1, so that products stay exact.
		if v == 1 {
			return 2
		}
		return 1
	}
	return float64(v)
}

// expect is what each rank must have at a place after an allreduce.
func (c *Config) expect(ranks, i int) float64 {
	acc := c.value(0, i)
	for rank := 1; rank < ranks; rank++ {
		v := c.value(rank, i)
		switch c.Op {
		case kernel.Min:
			acc = min(acc, v)
		case kernel.Max:
			acc = max(acc, v)
		case kernel.Product:
			acc *= v
		default:
			acc += v
		}
	}
	if c.Op == kernel.Average {
		acc /= float64(ranks)
	}
	return acc
}

// pattern returns a block of elements.
func (c *Config) pattern(at func(i int) float64) []byte {
	var one []byte
	for i := range period {
		one = encode(one, c.Type, at(i))
	}
	return bytes.Repeat(one, block/period)
}

// fill writes pattern over b, again and again.
func fill(b, pattern []byte) {
	for len(b) > 0 {
		b = b[copy(b, pattern):]
	}
}

// wrong counts the elements of b that differ from the pattern. Floating-point numbers may differ by the
// rounding of ranks additions, as an engine may add in any order, and by a further tolerance.
func wrong(t kernel.Type, b, pattern []byte, ranks int, by float64) int64 {
	var n int64
	for len(b) > 0 {
		m := min(len(b), len(pattern))
		if !bytes.Equal(b[:m], pattern[:m]) {
			n += differing(t, b[:m], pattern[:m], ranks, by)
		}
		b = b[m:]
	}
	return n
}

func differing(t kernel.Type, got, want []byte, ranks int, by float64) int64 {
	var n int64
	size, tolerance := t.Size(), epsilon(t)*float64(ranks)
	for i := 0; i+size <= len(got); i += size {
		a, b := got[i:i+size], want[i:i+size]
		if bytes.Equal(a, b) {
			continue
		}
		if x, y := decode(t, a), decode(t, b); !floating(t) || !(math.Abs(x-y) <= tolerance*math.Abs(y)+by) {
			n++
		}
	}
	return n
}

// slack is how far results may be off because of how they travelled. No sum of test data is more than 7 a rank.
func (c *Config) slack(ranks int) float64 {
	most := float64(ranks) * period
	if c.Op == kernel.Average {
		most = period
	}
	switch {
	case !c.Reduces() || c.Op != kernel.Sum && c.Op != kernel.Average || !c.Coding.Codes(c.Type):
		return 0
	case c.Coding == kernel.CodingInt8:
		return float64(ranks) * most / 127
	}
	return float64(ranks) * most / 256
}

func floating(t kernel.Type) bool { return epsilon(t) > 0 }

// epsilon is the distance from 1 to the next number, 0 for integers.
func epsilon(t kernel.Type) float64 {
	switch t {
	case kernel.Float16:
		return 0x1p-10
	case kernel.BFloat16:
		return 0x1p-7
	case kernel.Float32:
		return 0x1p-23
	case kernel.Float64:
		return 0x1p-52
	default:
		return 0
	}
}

// halves are how the kernel writes numbers of 2 bytes.
var halves = map[kernel.Type]kernel.Coding{kernel.Float16: kernel.CodingFloat16, kernel.BFloat16: kernel.CodingBFloat16}

// encode appends v, which is not negative. Integers wrap around as the kernels' do.
func encode(b []byte, t kernel.Type, v float64) []byte {
	switch t {
	case kernel.Float16, kernel.BFloat16:
		half := make([]byte, 2)
		halves[t].Encode(kernel.Float64, half, encode(nil, kernel.Float64, v))
		return append(b, half...)
	case kernel.Float32:
		return le.AppendUint32(b, math.Float32bits(float32(v)))
	case kernel.Float64:
		return le.AppendUint64(b, math.Float64bits(v))
	default:
		bits := le.AppendUint64(nil, uint64(math.Mod(v, 0x1p64)))
		return append(b, bits[:t.Size()]...)
	}
}

// decode reads a floating-point number; other types are only compared by their bytes.
func decode(t kernel.Type, b []byte) float64 {
	switch t {
	case kernel.Float16, kernel.BFloat16:
		whole := make([]byte, 8)
		halves[t].Decode(kernel.Float64, whole, b)
		return decode(kernel.Float64, whole)
	case kernel.Float32:
		return float64(math.Float32frombits(le.Uint32(b)))
	case kernel.Float64:
		return math.Float64frombits(le.Uint64(b))
	default:
		return 0
	}
}
