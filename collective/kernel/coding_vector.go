//go:build (amd64 || arm64) && !purego

package kernel

import "unsafe"

// encodeLines codes whole lines of float32 where the CPU can, and returns how many bytes of src that were.
func encodeLines(c Coding, dst, src []byte) int {
	if level(active.Load()) == generic {
		return 0
	}
	return byLines(len(src), func(from, lines int) {
		out, in := unsafe.Pointer(&dst[c.Bytes(Float32, int64(from))]), unsafe.Pointer(&src[from])
		switch c {
		case CodingFloat16:
			encodeFloat16Lines(out, in, lines)
		case CodingBFloat16:
			encodeBFloat16Lines(out, in, lines)
		case CodingInt8:
			encodeInt8Lines(out, in, lines)
		}
	})
}

// decodeLines is the inverse.
func decodeLines(c Coding, dst, src []byte) int {
	if level(active.Load()) == generic {
		return 0
	}
	return byLines(len(dst), func(from, lines int) {
		out, in := unsafe.Pointer(&dst[from]), unsafe.Pointer(&src[c.Bytes(Float32, int64(from))])
		switch c {
		case CodingFloat16:
			decodeFloat16Lines(out, in, lines)
		case CodingBFloat16:
			decodeBFloat16Lines(out, in, lines)
		case CodingInt8:
			decodeInt8Lines(out, in, lines)
		}
	})
}

// byLines calls f for pieces of n bytes, because an assembly loop cannot be preempted.
func byLines(n int, f func(from, lines int)) int {
	n = n / line * line
	for from := 0; from < n; from += piece {
		f(from, min(piece, n-from)/line)
	}
	return n
}

//go:noescape
func encodeFloat16Lines(dst, src unsafe.Pointer, lines int)

//go:noescape
func encodeBFloat16Lines(dst, src unsafe.Pointer, lines int)

//go:noescape
func encodeInt8Lines(dst, src unsafe.Pointer, lines int)

//go:noescape
func decodeFloat16Lines(dst, src unsafe.Pointer, lines int)

//go:noescape
func decodeBFloat16Lines(dst, src unsafe.Pointer, lines int)

//go:noescape
func decodeInt8Lines(dst, src unsafe.Pointer, lines int)
