//go:build !purego

package kernel

import "golang.org/x/sys/cpu"

// vectorStep is the multiple of bytes that the assembly works on.
const vectorStep = 256

func detect() level {
	x := &cpu.X86 // takes account of the operating system, which must save the registers
	switch {
	case !x.HasAVX2 || !x.HasF16C:
		return generic
	case x.HasAVX512F && x.HasAVX512BW && x.HasAVX512DQ && x.HasAVX512VL:
		return avx512
	}
	return avx2
}

// vector reduces the bytes from a.from to a.to, a multiple of vectorStep. It reports false, and does
// nothing, if there is no loop for that.
func vector(t Type, op Op, a *args) bool {
	if t < Float16 && a.flags&(flagPre|flagPost) != 0 {
		return false // scaled integers go through float64
	}
	switch level(active.Load()) {
	case avx512:
		return vectorAVX512(t, op, a)
	case avx2:
		return vectorAVX2(t, op, a)
	}
	return false
}

func vectorAVX2(t Type, op Op, a *args) bool {
	switch op {
	case Sum:
		switch t {
		case Float16:
			sumFloat16AVX2(a)
		case BFloat16:
			sumBFloat16AVX2(a)
		case Float32:
			sumFloat32AVX2(a)
		case Float64:
			sumFloat64AVX2(a)
		case Uint8, Int8:
			sum8AVX2(a)
		case Uint16, Int16:
			sum16AVX2(a)
		case Uint32, Int32:
			sum32AVX2(a)
		case Uint64, Int64:
			sum64AVX2(a)
		default:
			return false
		}
	case Min:
		switch t {
		case Float32:
			minFloat32AVX2(a)
		case Float64:
			minFloat64AVX2(a)
		default:
			return false
		}
	case Max:
		switch t {
		case Float32:
			maxFloat32AVX2(a)
		case Float64:
			maxFloat64AVX2(a)
		default:
			return false
		}
	case BitAnd:
		andAVX2(a)
	case BitOr:
		orAVX2(a)
	case BitXor:
		xorAVX2(a)
	default:
		return false
	}
	return true
}

func vectorAVX512(t Type, op Op, a *args) bool {
	switch op {
	case Sum:
		switch t {
		case Float16:
			sumFloat16AVX512(a)
		case BFloat16:
			sumBFloat16AVX512(a)
		case Float32:
			sumFloat32AVX512(a)
		case Float64:
			sumFloat64AVX512(a)
		case Uint8, Int8:
			sum8AVX512(a)
		case Uint16, Int16:
			sum16AVX512(a)
		case Uint32, Int32:
			sum32AVX512(a)
		case Uint64, Int64:
			sum64AVX512(a)
		default:
			return false
		}
	case Min:
		switch t {
		case Float32:
			minFloat32AVX512(a)
		case Float64:
			minFloat64AVX512(a)
		default:
			return false
		}
	case Max:
		switch t {
		case Float32:
			maxFloat32AVX512(a)
		case Float64:
			maxFloat64AVX512(a)
		default:
			return false
		}
	case BitAnd:
		andAVX512(a)
	case BitOr:
		orAVX512(a)
	case BitXor:
		xorAVX512(a)
	default:
		return false
	}
	return true
}

//go:noescape
func sumFloat16AVX2(a *args)

//go:noescape
func sumBFloat16AVX2(a *args)

//go:noescape
func sumFloat32AVX2(a *args)

//go:noescape
func sumFloat64AVX2(a *args)

//go:noescape
func minFloat32AVX2(a *args)

//go:noescape
func maxFloat32AVX2(a *args)

//go:noescape
func minFloat64AVX2(a *args)

//go:noescape
func maxFloat64AVX2(a *args)

//go:noescape
func sum8AVX2(a *args)

//go:noescape
func sum16AVX2(a *args)

//go:noescape
func sum32AVX2(a *args)

//go:noescape
func sum64AVX2(a *args)

//go:noescape
func andAVX2(a *args)

//go:noescape
func orAVX2(a *args)

//go:noescape
func xorAVX2(a *args)

//go:noescape
func sumFloat16AVX512(a *args)

//go:noescape
func sumBFloat16AVX512(a *args)

//go:noescape
func sumFloat32AVX512(a *args)

//go:noescape
func sumFloat64AVX512(a *args)

//go:noescape
func minFloat32AVX512(a *args)

//go:noescape
func maxFloat32AVX512(a *args)

//go:noescape
func minFloat64AVX512(a *args)

//go:noescape
func maxFloat64AVX512(a *args)

//go:noescape
func sum8AVX512(a *args)

//go:noescape
func sum16AVX512(a *args)

//go:noescape
func sum32AVX512(a *args)

//go:noescape
func sum64AVX512(a *args)

//go:noescape
func andAVX512(a *args)

//go:noescape
func orAVX512(a *args)

//go:noescape
func xorAVX512(a *args)
