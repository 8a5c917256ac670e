package link_test

import (
	"context"
	"os"
	"runtime"
	"sync"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"gorun/collective/link"
	"gorun/contrib/must"
)

// beside is a Handler that looks, in the goroutine of a stream's reader, on which CPUs it may run, and of which policy
// the memory is that it reads into.
type beside struct {
	mu       sync.Mutex
	segments map[uint64]int         // by network
	on       map[uint64]unix.CPUSet // where the last reader of a segment for a network could run
	policies map[int]int            // how often
}

const (
	flagAddress = 2 // MPOL_F_ADDR of get_mempolicy(2)
	preferred   = 1 // MPOL_PREFERRED without nodes is what MPOL_LOCAL was before Linux 5.14
	local       = 4
)

func (*beside) Place(int, link.Header) ([]byte, error) { return nil, nil }

func (b *beside) Deliver(_ int, h link.Header, payload []byte) {
	var cpus unix.CPUSet
	if err := unix.SchedGetaffinity(0, &cpus); err != nil {
		panic(err)
	}
	policy, at := -1, uintptr(unsafe.Pointer(&payload[0]))
	if at%uintptr(os.Getpagesize()) == 0 {
		var mode int32
		if _, _, no := unix.Syscall6(unix.SYS_GET_MEMPOLICY, uintptr(unsafe.Pointer(&mode)), 0, 0, at, flagAddress, 0); no == 0 {
			policy = int(mode)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.segments[h.Op]++
	b.on[h.Op] = cpus
	b.policies[policy]++
}

// TestStreamsBeside: what arrives for a network is read by threads on the CPU that its streams were given, into memory
// of the node of the thread that touches it first, also on machines where that is the only one; which node that is
// where there are two, TestVMBinding asks.
func TestStreamsBeside(t *testing.T) {
	var all unix.CPUSet
	must.Do(t, unix.SchedGetaffinity(0, &all))
	var cpus []int
	for cpu := range 1 << 10 {
		if all.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	const streams, networks, each = 5, 2, 20
	handler := beside{segments: map[uint64]int{}, on: map[uint64]unix.CPUSet{}, policies: map[int]int{}}
	a := newNode(t, 0, func(c *link.Config) { c.Streams, c.Rails = streams, networks })
	b := newNode(t, 1, func(c *link.Config) { c.Streams, c.Rails, c.Handler = streams, networks, &handler })
	b.mesh.Pin(func(stream int) {
		if stream == 0 {
			return
		}
		runtime.LockOSThread()
		var one unix.CPUSet
		one.Set(cpus[(stream-1)%networks%len(cpus)])
		if err := unix.SchedSetaffinity(0, &one); err != nil {
			t.Error(err)
		}
	})
	a.reach(1, b.addr())
	b.reach(0, a.addr())
	var up sync.WaitGroup
	for _, n := range []*node{a, b} {
		up.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			if err := n.mesh.Connect(ctx, []int{1 - n.id}); err != nil {
				t.Error(err)
			}
		})
	}
	up.Wait()
	must.Soon(t, "all streams are up", func() bool { s, _ := a.mesh.Status(1); return s.Streams == streams })
	for network := 1; network <= networks; network++ {
		for range each {
			a.mesh.Send(1, &link.Segment{Header: link.Header{Kind: link.Data, Op: uint64(network)}, Payload: make([]byte, 256<<10), Rail: network})
		}
	}
	for network := 1; network <= networks; network++ {
		must.Soon(t, "segments arrive", func() bool {
			handler.mu.Lock()
			defer handler.mu.Unlock()
			return handler.segments[uint64(network)] == each
		})
		handler.mu.Lock()
		on := handler.on[uint64(network)]
		if want := cpus[(network-1)%len(cpus)]; on.Count() != 1 || !on.IsSet(want) {
			t.Errorf("network %d: read on %d CPUs, should be on CPU %d", network, on.Count(), want)
		}
		handler.mu.Unlock()
	}
	handler.mu.Lock()
	defer handler.mu.Unlock()
	if _, _, no := unix.Syscall6(unix.SYS_GET_MEMPOLICY, 0, 0, 0, 0, 0, 0); no == unix.EPERM || no == unix.ENOSYS {
		t.Logf("this container asks no questions about memory: %v", no)
	} else if got := handler.policies; got[local]+got[preferred] != networks*each {
		t.Errorf("memory by policies %v (times they were seen), should be %d", got, local)
	}
}
