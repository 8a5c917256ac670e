package link_test

import (
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
	on       map[unix.CPUSet]int // segments, by where their reader could run
	policies map[int]int         // how often
}

const (
	flagAddress = 2 // MPOL_F_ADDR of get_mempolicy(2)
	preferred   = 1 // MPOL_PREFERRED without nodes is what MPOL_LOCAL was before Linux 5.14
	local       = 4
)

func (*beside) Place(int, link.Header) ([]byte, error) { return nil, nil }

func (b *beside) Deliver(_ int, _ link.Header, payload []byte) {
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
	b.on[cpus]++
	b.policies[policy]++
}

// TestStreamsBeside: what arrives is read by threads on the CPU that their stream was given, into memory
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
	const streams, networks, segments = 5, 2, 40
	given := map[unix.CPUSet]bool{}
	var sets [networks]unix.CPUSet
	for i := range sets {
		sets[i].Set(cpus[i%len(cpus)])
		given[sets[i]] = true
	}
	handler := beside{on: map[unix.CPUSet]int{}, policies: map[int]int{}}
	nodes := apart(t, 2, func(c *link.Config) { c.Streams, c.Handler = streams, &handler })
	a, b := nodes[0], nodes[1]
	b.mesh.Pin(func(stream int) {
		if stream == 0 {
			return
		}
		runtime.LockOSThread()
		if err := unix.SchedSetaffinity(0, &sets[(stream-1)%networks]); err != nil {
			t.Error(err)
		}
	})
	join(t, nodes...)
	must.Soon(t, "all streams are up", func() bool { s, _ := a.mesh.Status(1); return s.Streams == streams })
	for range segments {
		a.mesh.Send(1, &link.Segment{Header: link.Header{Kind: link.Data}, Payload: make([]byte, 256<<10)})
	}
	must.Soon(t, "segments arrive", func() bool {
		handler.mu.Lock()
		defer handler.mu.Unlock()
		all := 0
		for _, n := range handler.on {
			all += n
		}
		return all == segments
	})
	handler.mu.Lock()
	defer handler.mu.Unlock()
	for on, n := range handler.on {
		if !given[on] {
			t.Errorf("%d segments were read on %d CPUs that no stream was given", n, on.Count())
		}
	}
	if _, _, no := unix.Syscall6(unix.SYS_GET_MEMPOLICY, 0, 0, 0, 0, 0, 0); no == unix.EPERM || no == unix.ENOSYS {
		t.Logf("this container asks no questions about memory: %v", no)
	} else if got := handler.policies; got[local]+got[preferred] != segments {
		t.Errorf("memory by policies %v (times they were seen), should be %d", got, local)
	}
}
