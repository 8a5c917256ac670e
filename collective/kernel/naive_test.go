package kernel_test

import (
	"encoding/binary"
	"math"
	"math/big"
	"sort"

	"gorun/collective/kernel"
)

// naive computes one element after the other by other means than the package: integers in big numbers,
// float32 in float64, halves by search among all values.
func naive(p kernel.Plan, partial []byte, srcs [][]byte) []byte {
	n := len(partial)
	if partial == nil {
		n = len(srcs[0])
	}
	size := p.Type.Size()
	out := make([]byte, 0, n)
	in := make([][]byte, 0, len(srcs)+1)
	for i := 0; i < n; i += size {
		in = in[:0]
		if partial != nil {
			in = append(in, partial[i:i+size])
		}
		for _, s := range srcs {
			in = append(in, s[i:i+size])
		}
		out = append(out, naiveElement(p, partial != nil, in)...)
	}
	return out
}

func naiveElement(p kernel.Plan, partial bool, in [][]byte) []byte {
	truth := p.Type == kernel.Bool || p.Op >= kernel.LogicalAnd
	if len(in) == 1 && !truth && p.Post == 1 && (partial || p.Pre == 1) {
		return in[0]
	}
	round := func(x float64) float64 { return x }
	if t := p.Type; t == kernel.Float16 || t == kernel.BFloat16 || t == kernel.Float32 || t == kernel.Complex64 {
		// Rounds an exact result of two float32, held in a float64, to the accumulator.
		round = func(x float64) float64 { return float64(float32(x)) }
	}
	p.Pre, p.Post = round(p.Pre), round(p.Post)
	pre := func(i int) float64 {
		if i == 0 && partial {
			return 1
		}
		return p.Pre
	}
	switch t := p.Type; {
	case truth:
		return naiveTruth(p, in)
	case t < kernel.Float16:
		return naiveInteger(p, pre, in)
	case t == kernel.Complex64 || t == kernel.Complex128:
		return naiveComplex(p, round, pre, in)
	default:
		x := round(decode(t, in[0]) * pre(0))
		for i := 1; i < len(in); i++ {
			x = naiveFloat(p.Op, round, x, round(decode(t, in[i])*pre(i)))
		}
		return encode(t, round(x*p.Post))
	}
}

func naiveTruth(p kernel.Plan, in [][]byte) []byte {
	trues := 0
	for _, b := range in {
		for _, x := range b {
			if x != 0 {
				trues++
				break
			}
		}
	}
	result := false
	switch p.Op {
	case kernel.LogicalAnd, kernel.BitAnd, kernel.Product, kernel.Min:
		result = trues == len(in)
	case kernel.LogicalXor, kernel.BitXor:
		result = trues%2 == 1
	default:
		result = trues > 0
	}
	out := make([]byte, p.Type.Size())
	if result {
		out[0] = 1
	}
	return out
}

func signed(t kernel.Type) bool {
	return t == kernel.Int8 || t == kernel.Int16 || t == kernel.Int32 || t == kernel.Int64
}

func naiveInteger(p kernel.Plan, pre func(int) float64, in [][]byte) []byte {
	bits := uint(p.Type.Size() * 8)
	modulus := new(big.Int).Lsh(big.NewInt(1), bits)
	half := new(big.Int).Rsh(modulus, 1)
	low, high := new(big.Int), new(big.Int).Sub(modulus, big.NewInt(1))
	if signed(p.Type) {
		low, high = new(big.Int).Neg(half), new(big.Int).Sub(half, big.NewInt(1))
	}
	wrap := func(x *big.Int) *big.Int {
		x.Mod(x, modulus)
		if x.Cmp(high) > 0 {
			x.Sub(x, modulus)
		}
		return x
	}
	scale := func(x *big.Int, by float64) *big.Int {
		if by == 1 {
			return x
		}
		f, _ := new(big.Float).SetInt(x).Float64()
		if f *= by; math.IsInf(f, 0) {
			f = math.Copysign(math.MaxFloat64, f)
		}
		y, _ := big.NewFloat(f).Int(nil)
		if y.Cmp(low) < 0 {
			return new(big.Int).Set(low)
		}
		if y.Cmp(high) > 0 {
			return new(big.Int).Set(high)
		}
		return y
	}
	load := func(i int) *big.Int {
		b := make([]byte, 8)
		copy(b, in[i])
		return scale(wrap(new(big.Int).SetUint64(binary.LittleEndian.Uint64(b))), pre(i))
	}
	x := load(0)
	for i := 1; i < len(in); i++ {
		y := load(i)
		switch p.Op {
		case kernel.Sum, kernel.Average:
			x.Add(x, y)
		case kernel.Product:
			x.Mul(x, y)
		case kernel.Min:
			if y.Cmp(x) < 0 {
				x = y
			}
		case kernel.Max:
			if y.Cmp(x) > 0 {
				x = y
			}
		case kernel.BitAnd:
			x.And(x, y)
		case kernel.BitOr:
			x.Or(x, y)
		case kernel.BitXor:
			x.Xor(x, y)
		}
		x = wrap(x)
	}
	x = scale(x, p.Post)
	out := binary.LittleEndian.AppendUint64(nil, new(big.Int).Mod(x, modulus).Uint64())
	return out[:p.Type.Size()]
}

func naiveComplex(p kernel.Plan, round func(float64) float64, pre func(int) float64, in [][]byte) []byte {
	t := kernel.Float32
	if p.Type == kernel.Complex128 {
		t = kernel.Float64
	}
	load := func(i int) (re, im float64) {
		half := t.Size()
		return round(decode(t, in[i][:half]) * pre(i)), round(decode(t, in[i][half:]) * pre(i))
	}
	re, im := load(0)
	for i := 1; i < len(in); i++ {
		a, b := load(i)
		if p.Op == kernel.Product {
			re, im = round(round(re*a)-round(im*b)), round(round(re*b)+round(im*a))
		} else {
			re, im = round(re+a), round(im+b)
		}
	}
	return append(encode(t, round(re*p.Post)), encode(t, round(im*p.Post))...)
}

func naiveFloat(op kernel.Op, round func(float64) float64, x, y float64) float64 {
	less := x < y || x == y && math.Signbit(x)
	switch {
	case math.IsNaN(x) || math.IsNaN(y):
		return math.NaN()
	case op == kernel.Product:
		return round(x * y)
	case op == kernel.Min && less, op == kernel.Max && !less:
		return x
	case op == kernel.Min || op == kernel.Max:
		return y
	}
	return round(x + y)
}

func decode(t kernel.Type, b []byte) float64 {
	switch t {
	case kernel.Float64:
		return math.Float64frombits(binary.LittleEndian.Uint64(b))
	case kernel.Float32:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
	}
	x := halves[t].values[binary.LittleEndian.Uint16(b)&0x7fff]
	if b[1]&0x80 != 0 {
		return -x
	}
	return x
}

func encode(t kernel.Type, x float64) []byte {
	switch {
	case t == kernel.Float64 && math.IsNaN(x):
		return binary.LittleEndian.AppendUint64(nil, 0x7ff8000000000000)
	case t == kernel.Float64:
		return binary.LittleEndian.AppendUint64(nil, math.Float64bits(x))
	case t == kernel.Float32 && math.IsNaN(x):
		return binary.LittleEndian.AppendUint32(nil, 0x7fc00000)
	case t == kernel.Float32:
		return binary.LittleEndian.AppendUint32(nil, math.Float32bits(float32(x)))
	}
	return binary.LittleEndian.AppendUint16(nil, halves[t].encode(x))
}

// half is a 16-bit float as the list of its non-negative values: bit patterns are in order of value.
type half struct {
	values [0x8000]float64
	inf    int // its pattern, where the next value would be if the exponent went on
	nan    uint16
}

var halves = map[kernel.Type]*half{
	kernel.Float16:  newHalf(10, 15),
	kernel.BFloat16: newHalf(7, 127),
}

func newHalf(mantissaBits, bias int) *half {
	h := &half{}
	exponents := 1<<(15-mantissaBits) - 1
	for i := range h.values {
		exponent, mantissa := i>>mantissaBits, i&(1<<mantissaBits-1)
		switch {
		case exponent == 0:
			h.values[i] = math.Ldexp(float64(mantissa), 1-bias-mantissaBits)
		case exponent < exponents:
			h.values[i] = math.Ldexp(float64(mantissa|1<<mantissaBits), exponent-bias-mantissaBits)
		case mantissa == 0:
			h.values[i], h.inf = math.Inf(1), i
		default:
			h.values[i] = math.NaN()
		}
	}
	h.nan = uint16(h.inf | 1<<(mantissaBits-1))
	return h
}

func (h *half) encode(x float64) uint16 {
	if math.IsNaN(x) {
		return h.nan
	}
	sign := uint16(0)
	if math.Signbit(x) {
		sign = 0x8000
	}
	x = math.Abs(x)
	i := sort.Search(h.inf, func(i int) bool { return h.values[i] >= x }) // the first not below
	if i == h.inf && math.IsInf(x, 0) || i < h.inf && h.values[i] == x {
		return sign | uint16(i)
	}
	above := h.values[i]
	if i == h.inf {
		above = 2*h.values[i-1] - h.values[i-2]
	}
	below := h.values[i-1]
	if x-below < above-x || x-below == above-x && i%2 == 1 {
		i--
	}
	return sign | uint16(i)
}
