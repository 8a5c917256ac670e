package kernel

import (
	"math"
	"unsafe"
)

// The generic twins of the assembly, and the only loops for what has no assembly. They work on tiles of
// elements that stay in the L1 cache: load or convert every input into a tile, fold it into the tile of
// sums, store that to every destination. Loads and stores are copies, so alignment does not matter.

const tile = 256 // elements

type integer interface {
	int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64
}

type float interface{ float32 | float64 }

func reduceGeneric(t Type, op Op, a *args) {
	switch t {
	case Uint8:
		reduceIntegers[uint8](op, a)
	case Int8:
		reduceIntegers[int8](op, a)
	case Uint16:
		reduceIntegers[uint16](op, a)
	case Int16:
		reduceIntegers[int16](op, a)
	case Uint32:
		reduceIntegers[uint32](op, a)
	case Int32:
		reduceIntegers[int32](op, a)
	case Uint64:
		reduceIntegers[uint64](op, a)
	case Int64:
		reduceIntegers[int64](op, a)
	case Float16, BFloat16, Float32, Complex64:
		reduceFloats[float32](t, op, a)
	case Float64, Complex128:
		reduceFloats[float64](t, op, a)
	}
}

func reduceIntegers[T integer](op Op, a *args) {
	var sums, in [tile]T
	logical := op >= LogicalAnd
	size := int(unsafe.Sizeof(sums[0]))
	for from := a.from; from < a.to; from += tile * size {
		n := min(tile, (a.to-from)/size)
		x, y := sums[:n], in[:n]
		srcs := a.srcs
		if a.partial != nil {
			loadIntegers(x, a.partial[from:], logical)
		} else {
			loadIntegers(x, srcs[0][from:], logical)
			scaleIntegers(x, a.pre)
			srcs = srcs[1:]
		}
		for _, src := range srcs {
			loadIntegers(y, src[from:], logical)
			scaleIntegers(y, a.pre)
			foldIntegers(op, x, y)
		}
		scaleIntegers(x, a.post)
		for _, dst := range a.dsts {
			copy(dst[from:a.to], bytesOf(x))
		}
	}
}

func reduceFloats[T float](t Type, op Op, a *args) {
	var sums, in [tile]T
	size := floatSize[T](t)
	for from := a.from; from < a.to; from += tile * size {
		n := min(tile, (a.to-from)/size)
		x, y := sums[:n], in[:n]
		srcs := a.srcs
		if a.partial != nil {
			loadFloats(t, x, a.partial[from:])
		} else {
			loadFloats(t, x, srcs[0][from:])
			scaleFloats(x, T(a.pre))
			srcs = srcs[1:]
		}
		for _, src := range srcs {
			loadFloats(t, y, src[from:])
			scaleFloats(y, T(a.pre))
			if t >= Complex64 { // its sum is one of floats: this is the product
				multiplyComplex(x, y)
			} else {
				foldFloats(op, x, y)
			}
		}
		scaleFloats(x, T(a.post))
		canonical(x)
		bytes := storeFloats(t, x)
		for _, dst := range a.dsts {
			copy(dst[from:a.to], bytes)
		}
	}
}

// floatSize is the bytes of a float, or of a part of a complex number, for which T computes.
func floatSize[T float](t Type) int {
	if t.half() {
		return 2
	}
	var x T
	return int(unsafe.Sizeof(x))
}

// loadFloats reads elements into a tile.
func loadFloats[T float](t Type, x []T, src []byte) {
	if !t.half() {
		copy(bytesOf(x), src)
		return
	}
	var halves [tile]uint16
	h := halves[:len(x)]
	copy(bytesOf(h), src)
	widen(t, floats32(x), h)
}

// storeFloats returns the elements of a tile as they are in memory. It may put them into the tile.
func storeFloats[T float](t Type, x []T) []byte {
	if !t.half() {
		return bytesOf(x)
	}
	h := unsafe.Slice((*uint16)(unsafe.Pointer(&x[0])), len(x)) // behind what is read
	narrow(t, h, floats32(x))
	return bytesOf(h)
}

// floats32 returns a tile of 16-bit types, whose T is float32, as such: conversions of T would take a tenth longer.
func floats32[T float](x []T) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(&x[0])), len(x))
}

// bytesOf returns the memory of x, which is not empty.
func bytesOf[T integer | float](x []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(&x[0])), len(x)*int(unsafe.Sizeof(x[0])))
}

func loadIntegers[T integer](x []T, src []byte, logical bool) {
	copy(bytesOf(x), src)
	if !logical {
		return
	}
	for i := range x {
		if x[i] != 0 {
			x[i] = 1
		}
	}
}

func scaleIntegers[T integer](x []T, by float64) {
	if by == 1 {
		return
	}
	for i := range x {
		x[i] = truncate[T](float64(x[i]) * by)
	}
}

// truncate converts towards zero and saturates; Go leaves it to the CPU what a value out of range becomes.
func truncate[T integer](f float64) T {
	low, high := limits[T]()
	switch {
	case f <= float64(low):
		return low
	case f >= float64(high):
		return high
	}
	return T(f)
}

func limits[T integer]() (low, high T) {
	bits := unsafe.Sizeof(low) * 8
	if ^low > 0 {
		return 0, ^low
	}
	low = T(1) << (bits - 1)
	return low, ^low
}

func foldIntegers[T integer](op Op, x, y []T) {
	y = y[:len(x)]
	switch op {
	case Sum:
		for i := range x {
			x[i] += y[i]
		}
	case Min:
		for i := range x {
			x[i] = min(x[i], y[i])
		}
	case Max:
		for i := range x {
			x[i] = max(x[i], y[i])
		}
	case Product:
		for i := range x {
			x[i] *= y[i]
		}
	case BitAnd, LogicalAnd: // logical ones were loaded as 0 or 1
		for i := range x {
			x[i] &= y[i]
		}
	case BitOr, LogicalOr:
		for i := range x {
			x[i] |= y[i]
		}
	case BitXor, LogicalXor:
		for i := range x {
			x[i] ^= y[i]
		}
	}
}

func scaleFloats[T float](x []T, by T) {
	if by == 1 {
		return
	}
	for i := range x {
		x[i] = T(x[i] * by) // the conversion keeps the compiler from fusing it with an addition
	}
}

func foldFloats[T float](op Op, x, y []T) {
	y = y[:len(x)]
	switch op {
	case Sum:
		for i := range x {
			x[i] += y[i]
		}
	case Min: // Go's min and max propagate NaN and order -0 before +0
		for i := range x {
			x[i] = min(x[i], y[i])
		}
	case Max:
		for i := range x {
			x[i] = max(x[i], y[i])
		}
	case Product:
		for i := range x {
			x[i] *= y[i]
		}
	}
}

// multiplyComplex multiplies pairs of real and imaginary parts.
func multiplyComplex[T float](x, y []T) {
	y = y[:len(x)]
	for i := 0; i+1 < len(x); i += 2 {
		re := T(x[i]*y[i]) - T(x[i+1]*y[i+1])
		im := T(x[i]*y[i+1]) + T(x[i+1]*y[i])
		x[i], x[i+1] = re, im
	}
}

// canonical replaces every NaN by the one that Reduce promises: which payload an addition of two NaNs
// keeps depends on the order of its operands, and that on the compiler.
func canonical[T float](x []T) {
	for i := range x {
		if x[i] != x[i] {
			x[i] = T(math.Float32frombits(quietNaN))
		}
	}
}

const quietNaN = 0x7fc00000
