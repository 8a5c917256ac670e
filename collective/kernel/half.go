package kernel

import "math"

// half reports whether elements are computed as float32.
func (t Type) half() bool { return t == Float16 || t == BFloat16 }

// widen converts Float16 or BFloat16 to float32, which is exact.
func widen(t Type, dst []float32, src []uint16) {
	src = src[:len(dst)]
	if t == BFloat16 {
		for i := range dst {
			dst[i] = math.Float32frombits(uint32(src[i]) << 16)
		}
		return
	}
	for i := range dst {
		dst[i] = fromFloat16(src[i])
	}
}

// narrow rounds float32 to nearest even. A NaN must be the canonical one.
func narrow(t Type, dst []uint16, src []float32) {
	src = src[:len(dst)]
	if t == BFloat16 {
		for i := range dst {
			b := math.Float32bits(src[i])
			dst[i] = uint16((b + 0x7fff + b>>16&1) >> 16)
		}
		return
	}
	for i := range dst {
		dst[i] = toFloat16(src[i])
	}
}

func fromFloat16(h uint16) float32 {
	const rebias = 0x1p112 // the float32 exponent is biased by 127, not 15; denormals become normal
	f := math.Float32frombits(uint32(h&0x7fff)<<13) * rebias
	b := math.Float32bits(f) | uint32(h&0x8000)<<16
	if f >= 65536 { // infinity or NaN
		b |= 0xff << 23
	}
	return math.Float32frombits(b)
}

func toFloat16(f float32) uint16 {
	b := math.Float32bits(f)
	sign, b := uint16(b>>16&0x8000), b&0x7fffffff
	switch {
	case b > 0xff<<23: // NaN
		return sign | 0x7e00
	case b >= 0x477ff000: // 65520 and more round to infinity
		return sign | 0x7c00
	case b < 113<<23: // below 2⁻¹⁴ denormal: in the binade of ½ the last bit counts 2⁻²⁴
		return sign | uint16(math.Float32bits(math.Float32frombits(b)+0.5)-math.Float32bits(0.5))
	}
	b += 0xfff + b>>13&1
	return sign | uint16((b-112<<23)>>13)
}
