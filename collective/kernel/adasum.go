package kernel

import "fmt"

// Combine computes the Adasum of two vectors: dst = (1 - a·b/2|a|²) a + (1 - a·b/2|b|²) b over whole vectors of a
// float type: the sum of vectors that are orthogonal, the mean of equal ones. A vector without length leaves the other
// as it is. dst may be the same memory as a or b.
//
// The bits of the result depend on nothing but a and b in this order: products and sums are float64, added up
// from the first element to the last, and each element is rounded once.
func Combine(t Type, dst, a, b []byte) {
	if len(dst) != len(a) || len(a) != len(b) || len(a)%max(t.Size(), 1) != 0 {
		panic(fmt.Sprintf("kernel: adasum of %d and %d bytes into %d", len(a), len(b), len(dst)))
	}
	if len(a) == 0 {
		return
	}
	switch t {
	case Float16, BFloat16, Float32:
		adasum[float32](t, dst, a, b)
	case Float64:
		adasum[float64](t, dst, a, b)
	default:
		panic(fmt.Sprintf("kernel: adasum of %s", t))
	}
}

// dots are the products that determine the shares of two vectors.
type dots struct{ ab, aa, bb float64 }

func accumulate[T float](d *dots, x, y []T) {
	y = y[:len(x)]
	for i := range x {
		u, v := float64(x[i]), float64(y[i])
		// The conversions keep the compiler from fusing: other CPUs must give the same bits.
		d.ab += float64(u * v)
		d.aa += float64(u * u)
		d.bb += float64(v * v)
	}
}

// shares returns the factors of a and b.
func (d *dots) shares() (p, q float64) {
	p, q = 1, 1
	if d.aa != 0 {
		p = 1 - d.ab/(2*d.aa)
	}
	if d.bb != 0 {
		q = 1 - d.ab/(2*d.bb)
	}
	return p, q
}

func mix[T float](x, y []T, p, q float64) {
	y = y[:len(x)]
	for i := range x {
		x[i] = T(float64(p*float64(x[i])) + float64(q*float64(y[i])))
	}
}

func adasum[T float](t Type, dst, a, b []byte) {
	var first, second [tile]T
	step := tile * t.Size()
	pair := func(from int) (x, y []T) {
		n := min(step, len(a)-from) / t.Size()
		x, y = first[:n], second[:n]
		loadFloats(t, x, a[from:])
		loadFloats(t, y, b[from:])
		return x, y
	}
	var d dots
	for from := 0; from < len(a); from += step {
		x, y := pair(from)
		accumulate(&d, x, y)
	}
	p, q := d.shares()
	for from := 0; from < len(a); from += step {
		x, y := pair(from)
		mix(x, y, p, q)
		canonical(x)
		copy(dst[from:], storeFloats(t, x))
	}
}

// HasAdasum reports whether Combine is defined for a type.
func (t Type) HasAdasum() bool { return t >= Float16 && t <= Float64 }
