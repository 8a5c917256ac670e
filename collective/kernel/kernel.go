// Package kernel holds the element-wise arithmetic of the collectives: reduce, scale and copy over
// raw little-endian buffers, as assembly where the CPU allows it and as a generic twin everywhere.
//
// A kernel is pure: it allocates nothing, starts no goroutine and keeps no reference to a buffer.
//
// # Instruction sets
//
// On amd64 there are loops for AVX2 with F16C and for AVX-512 with BW, DQ and VL; on arm64 for NEON, which every
// ARMv8-A CPU has, its conversions of 16-bit floats too. They do every sum, minimum, maximum and product of integers
// and floats, and the bits of integers, except that AVX2 and NEON cannot multiply 64-bit integers. Generic code does
// the logical reductions, products of complex numbers, integers that are scaled, Adasum, and what is left over at the
// end of a buffer. The codings of float32 have loops for AVX2 and NEON, that of float64 is generic.
//
// The loops of arm64 have run in an emulator only, whose times say nothing about a CPU. By count, the sum of two
// inputs takes, per vector of 16 bytes,
//
//	integers  2 loads, 1 store, 1 addition
//	float32   2 loads, 1 store, 1 addition, 2 for NaN
//	bfloat16  2 loads, 1 store, 4 to widen, 2 additions, 4 for NaN, 7 to round
//	float16   2 loads, 1 store, 4 to widen, 2 additions, 4 for NaN, 2 to round
//
// so that a core which loads two vectors, stores one and computes two per cycle could do 16 bytes per cycle of
// integers, 11 of float32, 2 of bfloat16 and 3 of float16 in its first cache. Beyond the caches the limit is memory, as
// on amd64.
package kernel

import "fmt"

// Type is the element type of a tensor. The numbers are part of the rank protocol.
type Type uint8

// Element types.
const (
	Uint8      Type = 1
	Int8       Type = 2
	Uint16     Type = 3
	Int16      Type = 4
	Uint32     Type = 5
	Int32      Type = 6
	Uint64     Type = 7
	Int64      Type = 8
	Float16    Type = 9
	BFloat16   Type = 10
	Float32    Type = 11
	Float64    Type = 12
	Bool       Type = 13
	Complex64  Type = 14
	Complex128 Type = 15
	// Those below are moved only.
	Float8E4M3FN   Type = 16
	Float8E4M3FNUZ Type = 17
	Float8E5M2     Type = 18
	Float8E5M2FNUZ Type = 19
	Float8E8M0FNU  Type = 20
	Complex32      Type = 21
)

var types = [...]struct {
	name string
	size int
}{
	Uint8: {"uint8", 1}, Int8: {"int8", 1}, Uint16: {"uint16", 2}, Int16: {"int16", 2},
	Uint32: {"uint32", 4}, Int32: {"int32", 4}, Uint64: {"uint64", 8}, Int64: {"int64", 8},
	Float16: {"float16", 2}, BFloat16: {"bfloat16", 2}, Float32: {"float32", 4}, Float64: {"float64", 8},
	Bool: {"bool", 1}, Complex64: {"complex64", 8}, Complex128: {"complex128", 16},
	Float8E4M3FN: {"float8_e4m3fn", 1}, Float8E4M3FNUZ: {"float8_e4m3fnuz", 1}, Float8E5M2: {"float8_e5m2", 1},
	Float8E5M2FNUZ: {"float8_e5m2fnuz", 1}, Float8E8M0FNU: {"float8_e8m0fnu", 1}, Complex32: {"complex32", 4},
}

// Valid reports whether t is a known element type.
func (t Type) Valid() bool { return t > 0 && int(t) < len(types) }

// Size returns the bytes of one element, 0 for an unknown type.
func (t Type) Size() int {
	if !t.Valid() {
		return 0
	}
	return types[t].size
}

// Float reports whether elements are floating-point or complex numbers.
func (t Type) Float() bool { return t >= Float16 && t <= Float64 || t >= Complex64 && t.Valid() }

func (t Type) String() string {
	if !t.Valid() {
		return fmt.Sprintf("type(%d)", uint8(t))
	}
	return types[t].name
}

// Op is a reduction. The numbers 0 to 5 are Horovod's and part of the rank protocol.
type Op uint8

// Reductions. Average is a sum that the engine divides by the size of the group;
// kernels see it as Sum with a postscale.
const (
	Average    Op = 0
	Sum        Op = 1
	Adasum     Op = 2
	Min        Op = 3
	Max        Op = 4
	Product    Op = 5
	BitAnd     Op = 6
	BitOr      Op = 7
	BitXor     Op = 8
	LogicalAnd Op = 9
	LogicalOr  Op = 10
	LogicalXor Op = 11
)

var opNames = [...]string{"average", "sum", "adasum", "min", "max", "product",
	"bitand", "bitor", "bitxor", "logical_and", "logical_or", "logical_xor"}

// Valid reports whether o is a known reduction.
func (o Op) Valid() bool { return int(o) < len(opNames) }

func (o Op) String() string {
	if !o.Valid() {
		return fmt.Sprintf("op(%d)", uint8(o))
	}
	return opNames[o]
}
