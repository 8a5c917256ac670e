//go:build !linux

package link

func newPages(n int) []byte { return make([]byte, n) }

func freePages([]byte) {}
