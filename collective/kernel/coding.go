package kernel

import (
	"fmt"
	"math"
	"strings"
)

// Coding is how a tensor of float32 or float64 travels between hosts: as it is, or in fewer bytes of nearly
// the same content. Ready messages and the rank protocol carry its number, jobs its name.
//
// CodingFloat16 and CodingBFloat16 round each element to nearest even: by 2⁻¹¹ of its size (or 2⁻²⁵, if that is more;
// from 65520 on it becomes infinite), and by 2⁻⁸ of its size.
//
// CodingInt8 gives each line of 64 bytes, 16 float32 or 8 float64, a unit that is a power of two, as the MX formats do,
// and each element an int8 that counts units: it is off by half a unit at most, and that is less than 1/127 of the
// largest in its line. A line with a NaN, an infinity or a number of more than 127 × 2¹²¹ is NaN as a whole, so that an
// overflow shows. A line is a byte, the exponent of the unit as in a float32 (255 for NaN), and a byte per element.
//
// Lines are coded by themselves, so that a coded tensor can be cut between any two of them; and coding what was
// decoded gives the same bytes again.
type Coding uint8

// Codings.
const (
	CodingDefault  Coding = 0 // of a request: as the job is configured
	CodingNone     Coding = 1
	CodingFloat16  Coding = 2
	CodingBFloat16 Coding = 3
	CodingInt8     Coding = 4
)

var codings = [...]string{"", "none", "fp16", "bf16", "int8"}

// Valid reports whether c is a known coding.
func (c Coding) Valid() bool { return int(c) < len(codings) }

func (c Coding) String() string {
	if !c.Valid() {
		return fmt.Sprintf("coding(%d)", uint8(c))
	}
	return codings[c]
}

// ParseCoding is the inverse of String.
func ParseCoding(s string) (Coding, error) {
	for i, name := range codings {
		if s == name {
			return Coding(i), nil
		}
	}
	return CodingDefault, fmt.Errorf("unknown wire compression %q: it is one of %s", s, strings.Join(codings[1:], ", "))
}

// Codes reports whether c makes tensors of a type smaller.
func (c Coding) Codes(t Type) bool {
	return c >= CodingFloat16 && c.Valid() && (t == Float32 || t == Float64)
}

// line is the bytes of a tensor that are coded together.
const line = 64

// Bytes returns how long n bytes of a tensor are when coded.
func (c Coding) Bytes(t Type, n int64) int64 {
	if !c.Codes(t) {
		return n
	}
	elements := n / int64(t.Size())
	if c == CodingInt8 {
		return elements + (n+line-1)/line
	}
	return 2 * elements
}

// Encode codes src, whole elements of float32 or float64, into dst, which has exactly Bytes of room.
func (c Coding) Encode(t Type, dst, src []byte) {
	c.check(t, dst, src)
	if t == Float32 {
		n := encodeLines(c, dst, src)
		dst, src = dst[c.Bytes(t, int64(n)):], src[n:]
	}
	var singles [tile]float32
	var halves [tile]uint16
	size := t.Size()
	for len(src) > 0 {
		n := min(tile, len(src)/size)
		x, h := singles[:n], halves[:n]
		loadSingles(t, x, src)
		used := int(c.Bytes(t, int64(n*size)))
		if c == CodingInt8 {
			encodeUnits(dst[:used], x, line/size)
		} else {
			canonical(x)
			narrow(c.half(), h, x)
			copy(dst[:used], bytesOf(h))
		}
		dst, src = dst[used:], src[n*size:]
	}
}

// Decode is the inverse of Encode: it reads exactly Bytes of dst's length.
func (c Coding) Decode(t Type, dst, src []byte) {
	c.check(t, src, dst)
	if t == Float32 {
		n := decodeLines(c, dst, src)
		dst, src = dst[n:], src[c.Bytes(t, int64(n)):]
	}
	var singles [tile]float32
	var halves [tile]uint16
	size := t.Size()
	for len(dst) > 0 {
		n := min(tile, len(dst)/size)
		x, h := singles[:n], halves[:n]
		used := int(c.Bytes(t, int64(n*size)))
		if c == CodingInt8 {
			decodeUnits(x, src[:used], line/size)
		} else {
			copy(bytesOf(h), src[:used])
			widen(c.half(), x, h)
		}
		storeSingles(t, dst, x)
		dst, src = dst[n*size:], src[used:]
	}
}

// half is the type of the elements of a coded tensor.
func (c Coding) half() Type {
	if c == CodingBFloat16 {
		return BFloat16
	}
	return Float16
}

func (c Coding) check(t Type, coded, plain []byte) {
	if !c.Codes(t) || len(plain)%t.Size() != 0 || int64(len(coded)) != c.Bytes(t, int64(len(plain))) {
		panic(fmt.Sprintf("kernel: %d bytes of %s as %d bytes of %s", len(plain), t, len(coded), c))
	}
}

// loadSingles reads elements as float32, which rounds a float64 to nearest even.
func loadSingles(t Type, x []float32, src []byte) {
	if t == Float32 {
		copy(bytesOf(x), src)
		return
	}
	var doubles [tile]float64
	d := doubles[:len(x)]
	copy(bytesOf(d), src)
	for i := range x {
		x[i] = float32(d[i])
	}
}

func storeSingles(t Type, dst []byte, x []float32) {
	if t == Float32 {
		copy(dst, bytesOf(x))
		return
	}
	var doubles [tile]float64
	d := doubles[:len(x)]
	for i := range x {
		d[i] = float64(x[i])
	}
	copy(dst, bytesOf(d))
}

// Constants for finding the unit of a line. A float32 is 1.m × 2^(exponent-127), and the largest element of a line may
// be at most 127 units.
const (
	// tooLarge is the smallest float32, as bits without its sign, that exceeds 127 of the largest unit. Every infinity and
	// NaN is at least as large.
	tooLarge = 0x7f7e0001
	// roundUp carries into the exponent if 1.m is more than 127/64.
	roundUp = 0x1ffff
	// magic is 1.5 × 2²³. Adding a number to it rounds the number to an integer, which the lowest bits of the sum hold.
	magic = 12582912
)

func encodeUnits(dst []byte, x []float32, perLine int) {
	for len(x) > 0 {
		n := min(perLine, len(x))
		encodeLine(dst[:1+n], x[:n])
		dst, x = dst[1+n:], x[n:]
	}
}

func encodeLine(dst []byte, x []float32) {
	var top uint32
	for _, v := range x {
		top = max(top, math.Float32bits(v)&^(1<<31))
	}
	if top >= tooLarge {
		dst[0] = 255
		clear(dst[1:])
		return
	}
	exponent := max(int(top+roundUp)>>23-6, 1) // a unit is no denormal, and has an inverse
	dst[0] = byte(exponent)
	by := math.Float32frombits(uint32(254-exponent) << 23)
	dst = dst[1:][:len(x)]
	for i, v := range x {
		dst[i] = byte(math.Float32bits(float32(v*by) + magic))
	}
}

func decodeUnits(x []float32, src []byte, perLine int) {
	for len(x) > 0 {
		n := min(perLine, len(x))
		unit := math.Float32frombits(uint32(src[0]) << 23)
		if src[0] == 255 {
			unit = math.Float32frombits(quietNaN)
		}
		for i := range x[:n] {
			x[i] = float32(int8(src[1+i])) * unit
		}
		canonical(x[:n])
		x, src = x[n:], src[1+n:]
	}
}
