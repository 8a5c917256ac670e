package shm_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"gorun/contrib/must"
	"gorun/worker/shm"
)

func TestRegionIsSealed(t *testing.T) {
	b := shm.NewBudget(64 << 20)
	r, err := shm.Create(b, "gorun-test", 3<<20)
	must.Do(t, err)
	defer r.Release()
	if r.Size() != 4<<20 || b.Used() != 4<<20 {
		t.Errorf("size %d, charged %d, want both rounded up to 4 MiB", r.Size(), b.Used())
	}
	if err := unix.Ftruncate(r.FD(), 4096); err != unix.EPERM {
		t.Errorf("shrink: %v, want EPERM", err)
	}
	if err := unix.Ftruncate(r.FD(), 8<<20); err != unix.EPERM {
		t.Errorf("grow: %v, want EPERM", err)
	}
	m, err := unix.Mmap(r.FD(), 0, int(r.Size()), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	must.Do(t, err)
	defer unix.Munmap(m)
	m[r.Size()-1] = 7
	if got := r.Bytes()[r.Size()-1]; got != 7 {
		t.Errorf("last byte is %d after another mapping wrote 7", got)
	}
}

// TestLimitOfFileSizeIsNamed: the kernel holds shared memory against the limit of files.
func TestLimitOfFileSizeIsNamed(t *testing.T) {
	var before unix.Rlimit
	must.Do(t, unix.Getrlimit(unix.RLIMIT_FSIZE, &before))
	must.Do(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 3 << 20, Max: before.Max}))
	defer unix.Setrlimit(unix.RLIMIT_FSIZE, &before)
	b := shm.NewBudget(64 << 20)
	if _, err := shm.Create(b, "gorun-test", 4<<20); err == nil || !strings.Contains(err.Error(), "ulimit -f is 3072 KiB") {
		t.Errorf("a region above the limit: %v", err)
	}
	if b.Used() != 0 {
		t.Errorf("%d bytes stay charged", b.Used())
	}
}

func TestReadOnlyRegionCannotBeWritten(t *testing.T) {
	r, err := shm.CreateReadOnly(shm.NewBudget(64<<20), "gorun-test", 1)
	must.Do(t, err)
	defer r.Release()
	if _, err := unix.Mmap(r.FD(), 0, int(r.Size()), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err == nil {
		t.Error("the descriptor for ranks can be mapped writable")
	}
	if _, err := unix.Pwrite(r.FD(), []byte{1}, 0); err == nil {
		t.Error("the descriptor for ranks can be written")
	}
	m, err := unix.Mmap(r.FD(), 0, int(r.Size()), unix.PROT_READ, unix.MAP_SHARED)
	must.Do(t, err)
	unix.Munmap(m)
}

func TestBudget(t *testing.T) {
	b := shm.NewBudget(4 << 20)
	for _, n := range []int64{-1, 4<<20 + 1, 1 << 62} {
		if _, err := shm.Create(b, "gorun-test", n); !errors.Is(err, shm.ErrLimit) {
			t.Errorf("Create(%d): %v, want ErrLimit", n, err)
		}
	}
	first, err := shm.Create(b, "gorun-test", 3<<20)
	must.Do(t, err)
	if _, err := shm.Create(b, "gorun-test", 1); !errors.Is(err, shm.ErrLimit) {
		t.Errorf("over the limit: %v", err)
	}
	first.Release()
	if b.Used() != 0 {
		t.Errorf("%d bytes charged after the last release", b.Used())
	}
}

// TestUnmapAfterLastRelease counts mappings of this process by the name of the memfd.
func TestUnmapAfterLastRelease(t *testing.T) {
	name := fmt.Sprintf("gorun-unmap-%d", os.Getpid())
	r, err := shm.Create(shm.NewBudget(64<<20), name, 1)
	must.Do(t, err)
	r.Retain()
	r.Release()
	if n := mappings(t, name); n != 1 {
		t.Errorf("%d mappings while a reference is left, want 1", n)
	}
	r.Bytes()[0] = 1
	r.Release()
	if n := mappings(t, name); n != 0 {
		t.Errorf("%d mappings after the last release, want 0", n)
	}
	defer func() {
		if recover() == nil {
			t.Error("a release too many went unnoticed")
		}
	}()
	r.Release()
}

func mappings(t *testing.T, name string) int {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	must.Do(t, err)
	return strings.Count(string(maps), "/memfd:"+name+" ")
}

func TestPoolReuses(t *testing.T) {
	p := shm.NewPool(1 << 30)
	defer p.Close()
	seen := map[*byte]bool{}
	for range 1000 {
		b, err := p.Alloc(100 << 10)
		must.Do(t, err)
		if len(b.Bytes()) != 100<<10 {
			t.Fatalf("got %d bytes", len(b.Bytes()))
		}
		seen[&b.Bytes()[0]] = true
		b.Retain()
		b.Release()
		b.Release()
	}
	if len(seen) != 1 {
		t.Errorf("1000 results, one at a time, used %d slots", len(seen))
	}
}

func TestPoolSlotsDoNotOverlap(t *testing.T) {
	p := shm.NewPool(1 << 30)
	defer p.Close()
	sizes := []int{0, 1, 4095, 4096, 4097, 5000, 5120, 5121, 8192, 70000, 1 << 20, 1<<20 + 1, 3 << 20, 5<<20 - 3}
	type taken struct {
		b    []byte
		fill byte
	}
	var all []taken
	for round := range 5 {
		for i, n := range sizes {
			buf, err := p.Alloc(n)
			must.Do(t, err)
			defer buf.Release()
			b, fill := buf.Bytes(), byte(round*len(sizes)+i+1)
			if len(b) != n || cap(b) != n {
				t.Fatalf("asked for %d bytes, got %d with capacity %d", n, len(b), cap(b))
			}
			for j := range b {
				b[j] = fill
			}
			r, _, offset := buf.(*shm.Slot).Region()
			if n > 0 && &r.Bytes()[offset] != &b[0] {
				t.Fatalf("%d bytes are not at offset %d of their region", n, offset)
			}
			if offset%64 != 0 {
				t.Errorf("offset %d of %d bytes is not aligned", offset, n)
			}
			all = append(all, taken{b, fill})
		}
	}
	for _, x := range all {
		if !bytes.Equal(x.b, bytes.Repeat([]byte{x.fill}, len(x.b))) {
			t.Errorf("a buffer of %d bytes was overwritten", len(x.b))
		}
	}
}

// What a pool has room for it hands out, and not a byte more.
func TestPoolRoom(t *testing.T) {
	for _, limit := range []int64{4 << 10, 5<<10 - 1, 64<<20 - 1, 64 << 20, 64<<20 + 1, 100<<20 + 4711} {
		p := shm.NewPool(limit)
		room := int(p.Room())
		b, err := p.Alloc(room)
		if err != nil || int64(room) > limit || int64(room) < limit/5*4 {
			t.Fatalf("limit %d: room for %d bytes: %v", limit, room, err)
		}
		b.Release()
		if _, err := p.Alloc(room + 1); !errors.Is(err, shm.ErrLimit) {
			t.Errorf("limit %d: %d bytes and one more: %v", limit, room, err)
		}
		p.Close()
	}
}

func TestPoolLimit(t *testing.T) {
	p := shm.NewPool(64 << 20)
	defer p.Close()
	if _, err := p.Alloc(65 << 20); !errors.Is(err, shm.ErrLimit) {
		t.Errorf("more than the limit: %v", err)
	}
	if _, err := p.Alloc(-1); err == nil {
		t.Error("a negative size was accepted")
	}
	a, err := p.Alloc(48 << 20)
	must.Do(t, err)
	if _, err := p.Alloc(32 << 20); !errors.Is(err, shm.ErrLimit) {
		t.Errorf("over the limit: %v", err)
	}
	a.Release()
	b, err := p.Alloc(32 << 20) // the idle 48 MiB make room
	must.Do(t, err)
	b.Release()
	if p.Resident() != 32<<20 {
		t.Errorf("%d bytes resident, want 32 MiB", p.Resident())
	}
}

func TestPoolReturnsIdleMemory(t *testing.T) {
	p := shm.NewPool(1 << 30)
	defer p.Close()
	big, err := p.Alloc(16 << 20)
	must.Do(t, err)
	kept := big.Bytes()
	kept[0] = 9
	big.Release()
	for range 2000 {
		b, err := p.Alloc(10)
		must.Do(t, err)
		b.Release()
	}
	if p.Resident() > 1<<20 {
		t.Errorf("%d bytes resident though the big result is long idle", p.Resident())
	}
	again, err := p.Alloc(16 << 20)
	must.Do(t, err)
	defer again.Release()
	if &again.Bytes()[0] != &kept[0] || again.Bytes()[0] != 0 {
		t.Error("the slot was not emptied and used again")
	}
}

func TestPoolOutlivesClose(t *testing.T) {
	p := shm.NewPool(1 << 30)
	b, err := p.Alloc(3 << 20)
	must.Do(t, err)
	p.Close()
	p.Close()
	b.Bytes()[3<<20-1] = 1 // still mapped
	b.Release()
	if _, err := p.Alloc(1); err == nil {
		t.Error("a closed pool allocates")
	}
	if n := mappings(t, "gorun-result"); n != 0 {
		t.Errorf("%d result regions are still mapped", n)
	}
}

func TestPoolConcurrently(t *testing.T) {
	p := shm.NewPool(1 << 30)
	defer p.Close()
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 2000 {
				b, err := p.Alloc((i * 997) % 50000)
				if err != nil {
					t.Error(err)
					return
				}
				for j := range b.Bytes() {
					b.Bytes()[j] = byte(g)
					if j > 8 {
						break
					}
				}
				for j, x := range b.Bytes()[:min(8, len(b.Bytes()))] {
					if x != byte(g) {
						t.Errorf("byte %d is %d, written was %d", j, x, g)
						return
					}
				}
				b.Release()
			}
		})
	}
	wg.Wait()
}

func TestPoolAllocatesNoGarbage(t *testing.T) {
	p := shm.NewPool(1 << 30)
	defer p.Close()
	if n := testing.AllocsPerRun(1000, func() {
		x, err := p.Alloc(1 << 20)
		must.Do(t, err)
		x.Release()
	}); n != 0 {
		t.Errorf("%v allocations per result", n)
	}
}
