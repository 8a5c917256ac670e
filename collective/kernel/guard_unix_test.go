//go:build unix

package kernel_test

import (
	"math/rand/v2"
	"testing"

	"golang.org/x/sys/unix"

	"gorun/collective/kernel"
	"gorun/contrib/must"
)

// guarded returns memory between two pages that no one may touch.
func guarded(t *testing.T, size int) []byte {
	page := unix.Getpagesize()
	size = (size + page - 1) / page * page
	memory, err := unix.Mmap(-1, 0, size+2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	must.Do(t, err)
	t.Cleanup(func() { _ = unix.Munmap(memory) })
	for _, guard := range [][]byte{memory[:page], memory[size+page:]} {
		must.Do(t, unix.Mprotect(guard, unix.PROT_NONE))
	}
	return memory[page : size+page]
}

// TestGuardPage has buffers that end, and begin, where reading or writing one byte more is a crash.
func TestGuardPage(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	a, b, c := guarded(t, 4096), guarded(t, 4096), guarded(t, 4096)
	onAll(t, func(level string) {
		plans(func(p kernel.Plan) {
			size := p.Type.Size()
			random(rng, p.Type, a)
			random(rng, p.Type, b)
			want := naive(p, nil, [][]byte{a[len(a)-320:], b[len(b)-320:]})
			for n := 0; n <= 320; n += size {
				x, y, dst := a[len(a)-n:], b[len(b)-n:], c[len(c)-n:]
				p.Reduce([][]byte{dst}, nil, [][]byte{x, y})
				expect(t, level+" at the end", size, dst, want[320-n:])
				p.Reduce([][]byte{c[:n]}, nil, [][]byte{a[:n], b[:n]})
			}
		})
	})
}
