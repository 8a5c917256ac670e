package link

import (
	"os"
	"testing"
	"unsafe"
)

func TestScratch(t *testing.T) {
	var s scratch
	defer s.free()
	for range 3 {
		for _, n := range []int{1, 100 << 10, 5000, 512<<10 + 1} {
			b := s.take(n)
			if len(b) != n || cap(b) != n {
				t.Fatalf("%d bytes, %d with room, instead of %d", len(b), cap(b), n)
			}
			if at := uintptr(unsafe.Pointer(&b[0])); at%uintptr(os.Getpagesize()) != 0 {
				t.Errorf("%d bytes at %#x share a page with others", n, at)
			}
			for i := range b {
				b[i] = byte(i)
			}
		}
		large := s.take(512 << 10)
		if small := s.take(10); &small[0] != &large[0] {
			t.Error("other memory for less")
		}
		s.free()
	}
}
