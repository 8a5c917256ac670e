//go:build rdma

package ibverbs

import "encoding/binary"

// native is how the machine that the library runs on stores numbers.
var native = binary.NativeEndian

// mtuBytes and mtuEnum convert what the library calls an MTU.
func mtuBytes(enum uint32) int { return 256 << (min(max(enum, smallestMTU), largestMTU) - smallestMTU) }

func mtuEnum(bytes int) uint32 {
	enum := uint32(smallestMTU)
	for enum < largestMTU && mtuBytes(enum+1) <= bytes {
		enum++
	}
	return enum
}
