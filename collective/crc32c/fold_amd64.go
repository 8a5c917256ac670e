//go:build !purego

package crc32c

import (
	"encoding/binary"
	"hash/crc32"
	"math/bits"

	"golang.org/x/sys/cpu"
)

// The checksum is the remainder of the data, taken as a polynomial. Multiplying 256 bytes by x^2048 modulo the divisor
// and adding them to the 256 bytes that follow keeps it, so the last 256 bytes have the same remainder as all of the
// data.
const (
	foldBytes = 256 // folded at a time
	foldLeast = 1024
)

var foldable = cpu.X86.HasAVX512F && cpu.X86.HasAVX512VPCLMULQDQ && cpu.X86.HasSSE42

// foldBy are the factors of the lower and the upper half of each 128 bits, which lie 64 bits apart.
var foldBy = [2]uint64{power(8*foldBytes + 32), power(8*foldBytes - 32)}

// power returns x^n modulo the polynomial, with its bits in the order that the products of reflected data need.
func power(n int) uint64 {
	r := uint32(1)
	for range n {
		carry := r >> 31
		r <<= 1
		if carry != 0 {
			r ^= bits.Reverse32(crc32.Castagnoli)
		}
	}
	return uint64(bits.Reverse32(r)) << 1
}

// fold continues crc with p, whose length is a multiple of foldBytes.
func fold(crc uint32, p []byte) uint32 {
	var rest [foldBytes]byte
	copy(rest[:], p)
	binary.LittleEndian.PutUint32(rest[:], binary.LittleEndian.Uint32(rest[:])^^crc)
	return ^foldAVX512(&rest, p[foldBytes:], &foldBy)
}

// foldAVX512 folds p, whose length is a multiple of foldBytes, into rest, and returns the remainder.
//
//go:noescape
func foldAVX512(rest *[foldBytes]byte, p []byte, by *[2]uint64) uint32
