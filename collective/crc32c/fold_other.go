//go:build !amd64 || purego

package crc32c

const (
	foldBytes = 1
	foldLeast = 0
	foldable  = false
)

func fold(crc uint32, _ []byte) uint32 { return crc }
