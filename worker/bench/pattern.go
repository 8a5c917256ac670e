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
// rounding of ranks additions: an engine may add in any order.
func wrong(t kernel.Type, b, pattern []byte, ranks int) int64 {
	return wrongBy(t, b, pattern, ranks, 0)
}

// wrongBy is wrong with a further tolerance for floating-point numbers.
func wrongBy(t kernel.Type, b, pattern []byte, ranks int, by float64) int64 {
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

// encode appends v, which is not negative. Integers wrap around as the kernels' do.
func encode(b []byte, t kernel.Type, v float64) []byte {
	switch t {
	case kernel.Float16:
		return le.AppendUint16(b, half(v))
	case kernel.BFloat16:
		bits := math.Float32bits(float32(v))
		return le.AppendUint16(b, uint16((bits+0x7fff+bits>>16&1)>>16)) // round to nearest even
	case kernel.Float32:
		return le.AppendUint32(b, math.Float32bits(float32(v)))
	case kernel.Float64:
		return le.AppendUint64(b, math.Float64bits(v))
	default:
		bits := le.AppendUint64(nil, uint64(math.Mod(v, 0x1p64)))
		return append(b, bits[:t.Size()]...)
	}
}

// half is a binary16: 5 bits of exponent, 10 of mantissa. Values here are 0 or in the range of normal numbers, or
// become infinite.
func half(v float64) uint16 {
	if v == 0 {
		return 0
	}
	fraction, exponent := math.Frexp(v) // v = fraction * 2^exponent, fraction in [1/2, 1)
	mantissa := int(math.RoundToEven(fraction * 0x1p11))
	bits := (exponent+13)<<10 + mantissa // the leading 1 of the mantissa adds 1 to the exponent
	return uint16(min(bits, 0x7c00))
}

// decode reads a floating-point number; other types are only compared by their bytes.
func decode(t kernel.Type, b []byte) float64 {
	switch t {
	case kernel.Float16:
		bits := le.Uint16(b)
		exponent, mantissa := int(bits>>10&31), float64(bits&1023)
		v := math.Ldexp(1+mantissa/1024, exponent-15)
		switch {
		case exponent == 31:
			v = math.NaN()
		case exponent == 0:
			v = math.Ldexp(mantissa, -24)
		}
		if bits>>15 == 1 {
			v = -v
		}
		return v
	case kernel.BFloat16:
		return float64(math.Float32frombits(uint32(le.Uint16(b)) << 16))
	case kernel.Float32:
		return float64(math.Float32frombits(le.Uint32(b)))
	case kernel.Float64:
		return math.Float64frombits(le.Uint64(b))
	default:
		return 0
	}
}
