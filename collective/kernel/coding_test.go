package kernel_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"gorun/collective/kernel"
)

var allCodings = []kernel.Coding{kernel.CodingFloat16, kernel.CodingBFloat16, kernel.CodingInt8}

// codable calls f with every coding and type that it makes smaller.
func codable(f func(c kernel.Coding, t kernel.Type)) {
	for _, c := range allCodings {
		for _, t := range allTypes {
			if c.Codes(t) {
				f(c, t)
			}
		}
	}
}

// naiveCoding is the naive twin: it returns what a tensor is after a journey. Numbers are searched, not computed.
func naiveCoding(c kernel.Coding, t kernel.Type, src []byte) []byte {
	var out []byte
	per := 64 / t.Size()
	values := make([]float64, len(src)/t.Size())
	for i := range values {
		values[i] = float64(float32(decode(t, src[i*t.Size():])))
	}
	for from := 0; from < len(values); from += per {
		part := values[from:min(from+per, len(values))]
		top, finite := 0.0, true
		for _, v := range part {
			top = math.Max(top, math.Abs(v))
			finite = finite && math.Abs(v) <= math.Ldexp(127, 121) // no NaN is
		}
		unit := math.Ldexp(1, -126)
		for finite && unit*127 < top {
			unit *= 2
		}
		for _, v := range part {
			switch {
			case c == kernel.CodingInt8 && !finite:
				v = math.NaN()
			case c == kernel.CodingInt8:
				v = math.RoundToEven(v/unit)*unit + 0 // no -0
			case c == kernel.CodingFloat16:
				v = decode(kernel.Float16, encode(kernel.Float16, v))
			default:
				v = decode(kernel.BFloat16, encode(kernel.BFloat16, v))
			}
			out = append(out, encode(t, v)...)
		}
	}
	return out
}

// journey codes and decodes in memory that has not a byte to spare on either side.
func journey(t *testing.T, c kernel.Coding, typ kernel.Type, src []byte, shift int) []byte {
	t.Helper()
	const fence = 0xa5
	n := int(c.Bytes(typ, int64(len(src))))
	coded := bytes.Repeat([]byte{fence}, shift+n+64)
	c.Encode(typ, coded[shift:shift+n], src)
	again := make([]byte, n)
	out := bytes.Repeat([]byte{fence}, shift+len(src)+64)
	c.Decode(typ, out[shift:shift+len(src)], coded[shift:shift+n])
	c.Encode(typ, again, out[shift:shift+len(src)])
	if !bytes.Equal(again, coded[shift:shift+n]) {
		t.Fatalf("%s of %s, %d bytes: coding what was decoded gives other bytes", c, typ, len(src))
	}
	for name, b := range map[string][]byte{"coded": coded[shift+n:], "decoded": out[shift+len(src):]} {
		if !bytes.Equal(b, bytes.Repeat([]byte{fence}, 64)) {
			t.Fatalf("%s of %s, %d bytes: wrote beyond what is %s", c, typ, len(src), name)
		}
	}
	return out[shift : shift+len(src)]
}

// Every coding on every instruction set, all lengths to a few lines and long ones, against the naive twin.
func TestCodings(t *testing.T) {
	rng := rand.New(rand.NewPCG(21, 22))
	onAll(t, func(level string) {
		codable(func(c kernel.Coding, typ kernel.Type) {
			size := typ.Size()
			lengths := []int{1000, 4099, 70_001}
			for n := range 4*64/size + 3 {
				lengths = append(lengths, n)
			}
			for _, n := range lengths {
				src := random(rng, typ, make([]byte, n*size))
				if n%2 == 1 { // ordinary gradients
					for i := range n {
						copy(src[i*size:], encode(typ, rng.NormFloat64()*math.Ldexp(1, rng.IntN(20)-15)))
					}
				}
				got := journey(t, c, typ, src, n%7)
				expect(t, fmt.Sprint(level, " ", c, " of ", typ, " × ", n), size, got, naiveCoding(c, typ, src))
			}
		})
	})
}

// What the documentation of Coding promises about errors.
func TestCodingErrors(t *testing.T) {
	rng := rand.New(rand.NewPCG(23, 24))
	codable(func(c kernel.Coding, typ kernel.Type) {
		size := typ.Size()
		src := make([]byte, 64*500)
		for i := 0; i < len(src); i += size {
			copy(src[i:], encode(typ, rng.NormFloat64()))
		}
		got := journey(t, c, typ, src, 0)
		for i := 0; i < len(src); i += size {
			v, top := decode(typ, src[i:]), 0.0
			for j := i / 64 * 64; j < i/64*64+64; j += size {
				top = math.Max(top, math.Abs(decode(typ, src[j:])))
			}
			bound := map[kernel.Coding]float64{kernel.CodingFloat16: math.Max(math.Abs(v)/2048, 0x1p-25),
				kernel.CodingBFloat16: math.Abs(v) / 256, kernel.CodingInt8: top / 127}[c]
			if diff := math.Abs(decode(typ, got[i:]) - v); diff > bound*(1+1e-6) {
				t.Fatalf("%s: %g became %g", c, v, decode(typ, got[i:]))
			}
		}
	})
}

func TestParseCoding(t *testing.T) {
	for _, c := range append(allCodings, kernel.CodingNone, kernel.CodingDefault) {
		if got, err := kernel.ParseCoding(c.String()); got != c || err != nil {
			t.Errorf("%s: %v, %v", c, got, err)
		}
	}
	if _, err := kernel.ParseCoding("fp8"); err == nil {
		t.Error("fp8 is taken")
	}
	if kernel.CodingFloat16.Codes(kernel.Int32) || kernel.CodingNone.Codes(kernel.Float32) || kernel.Coding(9).Codes(kernel.Float32) {
		t.Error("codes what it should not")
	}
}

// FuzzCoding decodes whatever comes: a peer's bytes must not crash a host, and all instruction sets read the same.
func FuzzCoding(f *testing.F) {
	f.Add(uint8(2), []byte{255, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 130, 1})
	f.Fuzz(func(t *testing.T, which uint8, coded []byte) {
		c := allCodings[int(which)%len(allCodings)]
		n := len(coded) / 2
		if c == kernel.CodingInt8 {
			n = len(coded) - (len(coded)+16)/17
		}
		coded = coded[:c.Bytes(kernel.Float32, int64(4*n))]
		var first []byte
		onAll(t, func(level string) {
			out := make([]byte, 4*n)
			c.Decode(kernel.Float32, out, coded)
			quiet(out)
			if first == nil {
				first = out
			}
			if !bytes.Equal(out, first) {
				t.Errorf("%s reads other numbers", level)
			}
		})
	})
}

// quiet makes all NaNs one: a peer may have any other.
func quiet(b []byte) {
	for i := 0; i+4 <= len(b); i += 4 {
		if v := math.Float32frombits(binary.LittleEndian.Uint32(b[i:])); v != v {
			binary.LittleEndian.PutUint32(b[i:], 0x7fc00000)
		}
	}
}
