package collective_test

import (
	"encoding/binary"
	"math"

	"gorun/collective/kernel"
)

// The naive twin of the engine: all inputs in one place. It is exact for the small whole numbers that the tests use,
// whatever the order of additions.

func encode(t kernel.Type, values []complex128) []byte {
	b := make([]byte, 0, len(values)*t.Size())
	le := binary.LittleEndian
	for _, v := range values {
		x := real(v)
		switch t {
		case kernel.Uint8:
			b = append(b, uint8(x))
		case kernel.Int8:
			b = append(b, uint8(int8(x)))
		case kernel.Uint16:
			b = le.AppendUint16(b, uint16(x))
		case kernel.Int16:
			b = le.AppendUint16(b, uint16(int16(x)))
		case kernel.Uint32:
			b = le.AppendUint32(b, uint32(x))
		case kernel.Int32:
			b = le.AppendUint32(b, uint32(int32(x)))
		case kernel.Uint64:
			b = le.AppendUint64(b, uint64(x))
		case kernel.Int64:
			b = le.AppendUint64(b, uint64(int64(x)))
		case kernel.Float16:
			b = le.AppendUint16(b, float16(float32(x)))
		case kernel.BFloat16:
			bits := math.Float32bits(float32(x))
			b = le.AppendUint16(b, uint16((bits+0x7fff+bits>>16&1)>>16))
		case kernel.Float32:
			b = le.AppendUint32(b, math.Float32bits(float32(x)))
		case kernel.Float64:
			b = le.AppendUint64(b, math.Float64bits(x))
		case kernel.Bool:
			if x != 0 {
				x = 1
			}
			b = append(b, uint8(x))
		case kernel.Complex64:
			b = le.AppendUint32(b, math.Float32bits(float32(x)))
			b = le.AppendUint32(b, math.Float32bits(float32(imag(v))))
		case kernel.Complex128:
			b = le.AppendUint64(b, math.Float64bits(x))
			b = le.AppendUint64(b, math.Float64bits(imag(v)))
		}
	}
	return b
}

// float16 rounds a float32 of the normal range to nearest even.
func float16(f float32) uint16 {
	bits := math.Float32bits(f)
	sign := uint16(bits >> 16 & 0x8000)
	if f == 0 {
		return sign
	}
	exp := int(bits>>23&0xff) - 127 + 15
	m := bits & 0x7fffff
	m += 0xfff + m>>13&1
	if m > 0x7fffff {
		exp++
	}
	return sign | uint16(exp)<<10 | uint16(m>>13&0x3ff)
}

func signed(t kernel.Type) bool {
	switch t {
	case kernel.Uint8, kernel.Uint16, kernel.Uint32, kernel.Uint64, kernel.Bool:
		return false
	}
	return true
}

func isComplex(t kernel.Type) bool { return t == kernel.Complex64 || t == kernel.Complex128 }

// sample returns the input of a rank: whole numbers small enough that no sum or product of a few ranks
// overflows or is rounded.
func sample(t kernel.Type, op kernel.Op, rank, n int) []complex128 {
	v := make([]complex128, n)
	for i := range v {
		h := uint32(i*2654435761) ^ uint32(rank*40503+1)*0x9e3779b9
		h ^= h >> 15
		h *= 0x85ebca6b
		h ^= h >> 13
		x := float64(h % 8)
		y := float64(h >> 8 % 8)
		if op == kernel.Product {
			x, y = 1+float64(h>>4%2)*float64(rank%3), 0
		}
		// The zeros in a product of complex numbers have the signs of the order of multiplication.
		if signed(t) && h&(1<<20) != 0 && !(isComplex(t) && op == kernel.Product) {
			x = -x
		}
		if t == kernel.Bool {
			x = float64(h >> 9 % 2)
		}
		if !isComplex(t) {
			y = 0
		}
		v[i] = complex(x, float64(int(y)%8))
	}
	return v
}

// fold computes the reduction of the ranks' inputs at once, by a kernel, which package kernel holds to a naive twin.
func fold(t kernel.Type, op kernel.Op, pre, post float64, inputs [][]complex128) []byte {
	var srcs [][]byte
	for _, in := range inputs {
		srcs = append(srcs, encode(t, in))
	}
	if op == kernel.Average {
		post /= float64(len(inputs))
	}
	out := make([]byte, len(srcs[0]))
	kernel.Plan{Type: t, Op: op, Pre: pre, Post: post}.Reduce([][]byte{out}, nil, srcs)
	return out
}
