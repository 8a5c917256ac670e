package kernel_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"gorun/collective/kernel"
	"gorun/contrib/must"
)

var allTypes = []kernel.Type{kernel.Uint8, kernel.Int8, kernel.Uint16, kernel.Int16, kernel.Uint32, kernel.Int32,
	kernel.Uint64, kernel.Int64, kernel.Float16, kernel.BFloat16, kernel.Float32, kernel.Float64, kernel.Bool,
	kernel.Complex64, kernel.Complex128}

var allOps = []kernel.Op{kernel.Average, kernel.Sum, kernel.Adasum, kernel.Min, kernel.Max, kernel.Product,
	kernel.BitAnd, kernel.BitOr, kernel.BitXor, kernel.LogicalAnd, kernel.LogicalOr, kernel.LogicalXor}

// levels are the instruction sets that this machine and build can test.
func levels(t testing.TB) []string {
	var found []string
	for _, level := range []string{"generic", "avx2", "avx512", "neon"} {
		if restore, err := kernel.Force(level); err == nil {
			restore()
			found = append(found, level)
		}
	}
	if !slices.Contains(found, kernel.Level()) {
		t.Fatalf("level %q is none of %q", kernel.Level(), found)
	}
	return found
}

// plans calls f with every type and reduction that Check lets through.
func plans(f func(p kernel.Plan)) {
	for _, typ := range allTypes {
		for _, op := range allOps {
			if p := (kernel.Plan{Type: typ, Op: op, Pre: 1, Post: 1}); p.Check() == nil {
				f(p)
			}
		}
	}
}

// random fills b with elements of which many are special: extremes, zeros of both signs, infinities,
// NaNs with payloads, denormals, and values that meet halfway between two others.
func random(rng *rand.Rand, t kernel.Type, b []byte) []byte {
	unit := t
	switch t {
	case kernel.Complex64:
		unit = kernel.Float32
	case kernel.Complex128:
		unit = kernel.Float64
	}
	size := unit.Size()
	for i := 0; i < len(b); i += size {
		x := rng.Uint64()
		switch rng.IntN(4) {
		case 0:
			x = specials[unit][rng.IntN(len(specials[unit]))]
		case 1: // small numbers, as floats too
			n := float64(rng.IntN(2000)-1000) / 8
			x = uint64(int64(n))
			if unit >= kernel.Float16 && unit <= kernel.Float64 {
				copy(b[i:], encode(unit, n))
				continue
			}
		}
		copy(b[i:i+size], binary.LittleEndian.AppendUint64(nil, x))
	}
	return b
}

var specials = map[kernel.Type][]uint64{
	kernel.Uint8: {0, 1, 0xff, 0x80}, kernel.Int8: {0, 1, 0x7f, 0x80, 0xff}, kernel.Bool: {0, 0, 1, 2, 0x80},
	kernel.Uint16: {0, 1, 0xffff, 0x8000}, kernel.Int16: {0, 1, 0x7fff, 0x8000, 0xffff},
	kernel.Uint32: {0, 1, 0xffffffff, 1 << 31}, kernel.Int32: {0, 1, 1<<31 - 1, 1 << 31, 0xffffffff},
	kernel.Uint64: {0, 1, math.MaxUint64, 1 << 63}, kernel.Int64: {0, 1, 1<<63 - 1, 1 << 63, math.MaxUint64},
	kernel.Float16: {0, 0x8000, 0x7c00, 0xfc00, 0x7e01, 0xfe00, 0x7d01, 1, 0x83ff, 0x0400, 0x7bff, 0x3c00,
		0x3c01, 0x1000, 0x0fff},
	kernel.BFloat16: {0, 0x8000, 0x7f80, 0xff80, 0x7fc1, 0xffc0, 0x7f81, 1, 0x807f, 0x0080, 0x7f7f, 0x3f80,
		0x3f81, 0x3b80, 0x3b7f},
	kernel.Float32: {0, 1 << 31, 0x7f800000, 0xff800000, 0x7fc00001, 0xffc00000, 0x7f800001, 1, 0x807fffff,
		0x00800000, 0x7f7fffff, 0x3f800000, 0x33800000, 0x33800001},
	kernel.Float64: {0, 1 << 63, 0x7ff << 52, 0xfff << 52, 0x7ff8000000000001, 0xfff8 << 48, 0x7ff0000000000001,
		1, 1<<63 | 1<<52 - 1, 1 << 52, 0x7fefffffffffffff, 0x3ff0000000000000, 0x3ca0000000000000},
}

func expect(t *testing.T, what string, size int, got, want []byte) {
	t.Helper()
	if bytes.Equal(got, want) {
		return
	}
	for i := 0; i < len(want); i += size {
		if !bytes.Equal(got[i:i+size], want[i:i+size]) {
			t.Fatalf("%s: element %d of %d is %x, should be %x", what, i/size, len(want)/size,
				got[i:i+size], want[i:i+size])
		}
	}
}

// onAll runs f on every instruction set.
func onAll(t *testing.T, f func(level string)) {
	t.Helper()
	for _, level := range levels(t) {
		restore, err := kernel.Force(level)
		must.Do(t, err)
		func() {
			defer restore()
			f(level)
		}()
	}
}

// TestReduce compares every type and reduction with the naive twin for numbers of inputs, with and without
// a partial and scaling.
func TestReduce(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	plans(func(p kernel.Plan) {
		for _, scale := range [][2]float64{{1, 1}, {0.25, 1}, {1, 1. / 3}, {-1.7, 1e3}, {0, 1}, {1, 0}} {
			p.Pre, p.Post = scale[0], scale[1]
			if p.Check() != nil {
				continue
			}
			for _, inputs := range []struct {
				partial bool
				sources int
			}{{true, 0}, {false, 1}, {true, 1}, {false, 2}, {true, 2}, {false, 5}} {
				checkReduce(t, rng, p, inputs.sources, inputs.partial)
			}
		}
	})
}

func checkReduce(t *testing.T, rng *rand.Rand, p kernel.Plan, sources int, withPartial bool) {
	n := 512 + rng.IntN(8)*p.Type.Size() // two steps of a vector loop, and a tail
	n -= n % p.Type.Size()
	var partial []byte
	if withPartial {
		partial = random(rng, p.Type, make([]byte, n))
	}
	var srcs [][]byte
	for range sources {
		srcs = append(srcs, random(rng, p.Type, make([]byte, n)))
	}
	want := naive(p, partial, srcs)
	onAll(t, func(level string) {
		dsts := [][]byte{make([]byte, n), make([]byte, n)}
		p.Reduce(dsts, partial, srcs)
		what := fmt.Sprintf("%s: %+v of %d sources, partial %v", level, p, sources, withPartial)
		expect(t, what, p.Type.Size(), dsts[0], want)
		expect(t, what+", second", p.Type.Size(), dsts[1], want)
	})
}

// TestLengths reduces every length up to four steps and a tail, at misaligned addresses, also with stores
// past the cache, and looks that nothing around a destination changes.
func TestLengths(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	plans(func(p kernel.Plan) {
		size := p.Type.Size()
		longest := (4*256 + 16) / size * size
		if size < 4 { // more elements, and slow
			longest /= 2
		}
		a := random(rng, p.Type, make([]byte, longest+size)[1:longest+1]) // off any alignment
		b := random(rng, p.Type, make([]byte, longest))
		want := naive(p, nil, [][]byte{a, b})
		untouched := bytes.Repeat([]byte{0xa5}, longest+128)
		room := make([]byte, len(untouched))
		onAll(t, func(level string) {
			for n := 0; n <= longest; n += size {
				p.NonTemporal = n/size%2 == 1
				at := rng.IntN(64)
				copy(room, untouched)
				dst := room[at : at+n : at+n]
				p.Reduce([][]byte{dst}, nil, [][]byte{a[:n], b[:n]})
				expect(t, fmt.Sprintf("%s: %+v of %d bytes at %d", level, p, n, at), size, dst, want[:n])
				copy(dst, untouched)
				if !bytes.Equal(room, untouched) {
					t.Fatalf("%s: %+v of %d bytes at %d wrote beyond them", level, p, n, at)
				}
			}
		})
	})
}

// TestAliasing lets destinations be inputs.
func TestAliasing(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	plans(func(p kernel.Plan) {
		n := 6*256*p.Type.Size()/4 + 48 // more than a tile
		inputs := make([][]byte, 4)
		for i := range inputs {
			inputs[i] = random(rng, p.Type, make([]byte, n))
		}
		want := naive(p, inputs[0], inputs[1:])
		onAll(t, func(level string) {
			for dst := range inputs {
				buffers := make([][]byte, len(inputs))
				for i := range buffers {
					buffers[i] = bytes.Clone(inputs[i])
				}
				other := (dst + 1) % len(buffers)
				p.Reduce([][]byte{buffers[dst], buffers[other]}, buffers[0], buffers[1:])
				expect(t, fmt.Sprintf("%s: %+v into input %d", level, p, dst), p.Type.Size(), buffers[dst], want)
				expect(t, fmt.Sprintf("%s: %+v into input %d", level, p, other), p.Type.Size(), buffers[other], want)
			}
		})
	})
}

// TestHalfConversions goes through all values of the 16-bit floats, scaled to where they round.
func TestHalfConversions(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	all := make([]byte, 0, 2<<16)
	for i := range 1 << 16 {
		all = binary.LittleEndian.AppendUint16(all, uint16(i))
	}
	for _, typ := range []kernel.Type{kernel.Float16, kernel.BFloat16} {
		for _, post := range []float64{1. / 3, 1 + 0x1p-9, 1 << 14, 0x1p-10} {
			p := kernel.Plan{Type: typ, Op: kernel.Sum, Pre: 1, Post: post}
			other := random(rng, typ, make([]byte, len(all)))
			for _, srcs := range [][][]byte{{all}, {all, other}} {
				want := naive(p, nil, srcs)
				onAll(t, func(level string) {
					dst := make([]byte, len(all))
					p.Reduce([][]byte{dst}, nil, srcs)
					expect(t, fmt.Sprintf("%s: %+v of %d", level, p, len(srcs)), 2, dst, want)
				})
			}
		}
	}
}

func TestCopy(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	for _, n := range []int{0, 1, 100, 16 << 10, 40000} {
		src := random(rng, kernel.Uint8, make([]byte, n))
		want := bytes.Clone(src)
		dsts := [][]byte{make([]byte, n), src, make([]byte, n)}
		kernel.Copy(dsts, src)
		kernel.Copy(dsts[:1], src)
		for i, d := range dsts {
			if !bytes.Equal(d, want) {
				t.Errorf("%d bytes: copy %d differs", n, i)
			}
		}
	}
}

func TestCheck(t *testing.T) {
	for _, c := range []struct {
		plan kernel.Plan
		says string
	}{
		{kernel.Plan{Type: kernel.Float32, Op: kernel.Sum, Pre: 1, Post: 1}, ""},
		{kernel.Plan{Type: kernel.Int32, Op: kernel.Average, Pre: 0.5, Post: 0.25}, ""},
		{kernel.Plan{Type: kernel.Bool, Op: kernel.Max, Pre: 1, Post: 1}, ""},
		{kernel.Plan{Type: kernel.Complex64, Op: kernel.Product, Pre: 1, Post: 2}, ""},
		{kernel.Plan{Type: kernel.Int8, Op: kernel.LogicalXor, Pre: 1, Post: 1}, ""},
		{kernel.Plan{Type: 0, Op: kernel.Sum, Pre: 1, Post: 1}, "unknown element"},
		{kernel.Plan{Type: 99, Op: kernel.Sum, Pre: 1, Post: 1}, "unknown element"},
		{kernel.Plan{Type: kernel.Int8, Op: 99, Pre: 1, Post: 1}, "unknown reduction"},
		{kernel.Plan{Type: kernel.Float32, Op: kernel.Adasum, Pre: 1, Post: 1}, "adasum is not defined for float32"},
		{kernel.Plan{Type: kernel.Float16, Op: kernel.BitAnd, Pre: 1, Post: 1}, "bitand is not defined for float16"},
		{kernel.Plan{Type: kernel.Float64, Op: kernel.LogicalOr, Pre: 1, Post: 1}, "logical_or is not defined"},
		{kernel.Plan{Type: kernel.Complex128, Op: kernel.Min, Pre: 1, Post: 1}, "min is not defined for complex128"},
		{kernel.Plan{Type: kernel.Bool, Op: kernel.Average, Pre: 1, Post: 0.5}, "average of bool cannot be scaled"},
		{kernel.Plan{Type: kernel.Int32, Op: kernel.BitOr, Pre: 2, Post: 1}, "bitor of int32 cannot be scaled"},
		{kernel.Plan{Type: kernel.Float32, Op: kernel.Sum, Pre: 0, Post: 1}, ""},
		{kernel.Plan{Type: kernel.Int8, Op: kernel.Max, Pre: 1, Post: 0}, ""},
		{kernel.Plan{Type: kernel.Bool, Op: kernel.Max, Pre: 1, Post: 0}, "max of bool cannot be scaled"},
		{kernel.Plan{Type: kernel.Float32, Op: kernel.Sum, Pre: 1, Post: math.Inf(-1)}, "scale factor -Inf"},
		{kernel.Plan{Type: kernel.Float32, Op: kernel.Sum, Pre: math.NaN(), Post: 1}, "scale factor NaN"},
	} {
		err := c.plan.Check()
		if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%+v: %v, should say %q", c.plan, err, c.says)
		}
	}
}

// TestMisuse shows that a broken invariant stops the program instead of writing beyond a buffer.
func TestMisuse(t *testing.T) {
	sum := kernel.Plan{Type: kernel.Float32, Op: kernel.Sum, Pre: 1, Post: 1}
	for name, f := range map[string]func(){
		"unchecked":     func() { kernel.Plan{Type: kernel.Float32, Op: kernel.Adasum}.Reduce(nil, make([]byte, 4), nil) },
		"no input":      func() { sum.Reduce([][]byte{make([]byte, 4)}, nil, nil) },
		"short source":  func() { sum.Reduce([][]byte{make([]byte, 8)}, make([]byte, 8), [][]byte{make([]byte, 4)}) },
		"short dst":     func() { sum.Reduce([][]byte{make([]byte, 4)}, make([]byte, 8), nil) },
		"half elements": func() { sum.Reduce([][]byte{make([]byte, 6)}, make([]byte, 6), nil) },
		"short copy":    func() { kernel.Copy([][]byte{make([]byte, 4)}, make([]byte, 8)) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
}

func TestNoAllocation(t *testing.T) {
	const n = 10000
	onAll(t, func(level string) {
		plans(func(p kernel.Plan) {
			size := p.Type.Size()
			x, y, z := make([]byte, n*size), make([]byte, n*size), make([]byte, n*size)
			if got := testing.AllocsPerRun(3, func() {
				p.Reduce([][]byte{z, y}, z, [][]byte{x, y})
				kernel.Copy([][]byte{x, y}, z)
			}); got != 0 {
				t.Errorf("%s: %+v allocates %v times", level, p, got)
			}
		})
	})
}

// FuzzReduce compares any plan on any bytes with the naive twin, on every instruction set.
func FuzzReduce(f *testing.F) {
	f.Add(uint8(kernel.Float16), uint8(kernel.Sum), uint8(2), 1.0, 0.5, bytes.Repeat([]byte{0xff, 0x7c, 1, 0x80}, 200))
	f.Add(uint8(kernel.Float32), uint8(kernel.Min), uint8(3), 1.0, 1.0, bytes.Repeat([]byte{0, 0, 0x80, 0x7f, 0, 0, 0, 0x80}, 200))
	f.Add(uint8(kernel.Int64), uint8(kernel.Product), uint8(4), 1e18, 1.5, bytes.Repeat([]byte{1, 2, 3, 4, 5, 6, 7, 0xf8}, 200))
	f.Fuzz(func(t *testing.T, typ, op, inputs uint8, pre, post float64, data []byte) {
		p := kernel.Plan{Type: kernel.Type(typ), Op: kernel.Op(op), Pre: pre, Post: post}
		if p.Check() != nil || len(data) > 8192 {
			return
		}
		count := int(inputs%5) + 1
		n := len(data) / count / p.Type.Size() * p.Type.Size()
		var in [][]byte
		for i := range count {
			in = append(in, data[i*n:(i+1)*n])
		}
		var partial []byte
		srcs := in
		if inputs&0x80 != 0 {
			partial, srcs = in[0], in[1:]
		}
		p.NonTemporal = inputs&0x40 != 0
		want := naive(p, partial, srcs)
		onAll(t, func(level string) {
			dst := make([]byte, n)
			p.Reduce([][]byte{dst}, partial, srcs)
			expect(t, fmt.Sprintf("%s: %+v", level, p), p.Type.Size(), dst, want)
		})
	})
}
