package session_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gorun/collective"
	"gorun/collective/link"
	"gorun/contrib/must"
	"gorun/worker/session"
	"gorun/worker/shm"
)

// wires join the engines of several hosts in memory.
type wires struct {
	t       testing.TB
	engines []*collective.Engine
	wg      sync.WaitGroup
	mu      sync.Mutex
	late    map[int]chan struct{} // data for a host waits until it is closed
	deliver func()
}

// delay has data for some hosts wait until the function that it returns is called.
func (w *wires) delay(hosts ...int) (deliver func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	late := make(chan struct{})
	for _, host := range hosts {
		w.late[host] = late
	}
	w.deliver = sync.OnceFunc(func() {
		w.mu.Lock()
		clear(w.late)
		w.mu.Unlock()
		close(late)
	})
	return w.deliver
}

// plug is a host's end. It implements collective.Transport.
type plug struct {
	*wires
	self int
}

func (p plug) Send(peer int, s *link.Segment) {
	p.mu.Lock()
	late := p.late[peer]
	p.mu.Unlock()
	p.wg.Go(func() {
		s.Owner.Prepare(s)
		h, payload := s.Header, slices.Clone(s.Payload)
		s.Owner.Acked(s) // it will come
		if late != nil && h.Kind == link.Data {
			<-late
		}
		dst, err := p.engines[peer].Place(p.self, h)
		if err != nil {
			p.t.Errorf("host %d refuses a segment of host %d: %v", peer, p.self, err)
			return
		}
		if dst == nil {
			dst = make([]byte, len(payload))
		}
		copy(dst, payload)
		p.engines[peer].Deliver(p.self, h, dst)
	})
}

// startHosts starts a world of hosts with the given ranks.
func startHosts(t testing.TB, layout ...[]int) ([]*host, *wires) {
	t.Helper()
	w := &wires{t: t, late: map[int]chan struct{}{}, deliver: func() {}}
	t.Cleanup(w.wg.Wait) // after all that sends has ended
	world := collective.EngineWorld{Epoch: 5}
	for i, ranks := range layout {
		world.Hosts = append(world.Hosts, collective.HostRanks{ID: i, Name: fmt.Sprint("host", i+1), Ranks: ranks})
		world.Size += len(ranks)
	}
	var hosts []*host
	for i := range layout {
		h := &host{pool: shm.NewPool(1 << 30)}
		h.real = collective.New(collective.Config{Transport: plug{w, i}, Alloc: h.pool, Carry: -1})
		world.Self = i
		must.Do(t, h.real.SetWorld(world))
		w.engines, hosts = append(w.engines, h.real), append(hosts, h)
	}
	for i, h := range hosts {
		h.serve(t, session.Config{Engine: realEngine{h.real}}, layout[i])
		places := session.LocalWorld{Epoch: 5, Size: world.Size, Hosts: len(layout)}
		for local, rank := range layout[i] {
			places.Places = append(places.Places, session.RankPlace{Process: rank, Rank: rank, LocalRank: local, CrossRank: i, CrossSize: len(layout)})
		}
		h.server.SetWorld(places)
	}
	t.Cleanup(func() { w.deliver() })
	return hosts, w
}

// Tensors of several types of one call all end as usual, although their process set is removed while the first one is under
// way, if all members have submitted them; and fail together if one has not.
func TestFollowersInARemovedSet(t *testing.T) {
	layout := [][]int{{0, 1}, {2}, {3}}
	hosts, wires := startHosts(t, layout...)
	members := []int{0, 1, 2}
	var ranks []*client
	for i, local := range layout {
		ranks = append(ranks, joinAll(t, hosts[i], local)...)
	}
	const n, at = 1 << 13, 1 << 18 // floats of a tensor, and the bytes from one to the next
	follows := []string{"g.part2", "g.part3"}
	submit := func(r *client, set uint32, signature int32) {
		for i := range 3 {
			for j := range n {
				binary.LittleEndian.PutUint32(r.memory[at*i+4*j:], math.Float32bits(float32(i+1)))
			}
			o := allreduce(uint32(3-i), r.region, n, "g")
			o.inOffset, o.outOffset, o.root, o.group = uint64(at*i), uint64(at*i), signature, set
			if i < 2 {
				o.name, o.splits = follows[i], []int32{-1}
			} else {
				o.splits = []int32{2, 3}
			}
			r.send(o.encode())
		}
	}
	holds := func(r *client) [3]float32 {
		var got [3]float32
		for i := range got {
			got[i] = math.Float32frombits(binary.LittleEndian.Uint32(r.memory[at*i+4*(n-1):]))
		}
		return got
	}
	waiting := func(host int, name string) bool {
		return slices.ContainsFunc(hosts[host].real.Pending(time.Now()), func(s collective.Stall) bool { return s.Name == name })
	}
	for round := range 24 {
		set := uint32(round + 1)
		for _, r := range ranks {
			r.send(operation{handle: 7, kind: collective.AddGroup, in: none, out: none, splits: []int32{0, 1, 2}, name: "set"}.encode())
		}
		for i, r := range ranks {
			if text := r.ends(7)[7]; text != "" {
				t.Fatalf("round %d, rank %d: %s", round, i, text)
			}
		}
		remove := operation{handle: 9, kind: collective.RemoveGroup, in: none, out: none, root: int32(set), name: "set"}
		deliver := wires.delay([][]int{{0, 1}, {0}, {1}, {1}, {}, {}}[round%6]...)
		early := map[int][]uint32{} // what ends while data is late
		fails := ""
		for i, r := range ranks[:3] {
			switch {
			case round%6 == 4 && i == 2: // it never comes
				fails = fmt.Sprintf("process set %d was removed", set)
			case round%6 == 5:
				fails = "rank 2 on host2"
				submit(r, set, int32(i/2))
			default:
				submit(r, set, 1)
			}
		}
		switch round % 6 {
		case 1:
			early[2] = []uint32{1}
		case 2, 3:
			early[0], early[1] = []uint32{1}, []uint32{1}
		}
		for i, r := range ranks {
			if i == 3 && round%6 == 3 { // before the set is removed, the second host has heard of what follows
				must.Soon(t, "what follows", func() bool { return waiting(1, follows[0]) && waiting(1, follows[1]) })
			}
			r.send(remove.encode())
		}
		if fails != "" {
			for i, r := range ranks {
				handles := []uint32{9}
				switch {
				case i < 2 || i == 2 && round%6 == 5:
					handles = append(handles, 1, 2, 3)
				}
				for handle, text := range r.ends(handles...) {
					if handle == 9 && text != "" || handle != 9 && !strings.Contains(text, fails) {
						t.Fatalf("round %d, rank %d, operation %d: %q, want %q", round, i, handle, text, fails)
					}
				}
			}
			deliver()
			continue
		}
		for i, r := range ranks {
			for handle, text := range r.ends(append(early[i], 9)...) {
				if text != "" {
					t.Fatalf("round %d, rank %d, operation %d: %s", round, i, handle, text)
				}
			}
		}
		deliver()
		for i := range members {
			rest := []uint32{1, 2, 3}
			if early[i] != nil {
				rest = rest[1:]
			}
			for handle, text := range ranks[i].ends(rest...) {
				if text != "" {
					t.Fatalf("round %d, rank %d, operation %d: %s", round, i, handle, text)
				}
			}
			if got := holds(ranks[i]); got != [3]float32{3, 6, 9} {
				t.Fatalf("round %d, rank %d has %v", round, i, got)
			}
		}
		for i := range members {
			late := allreduce(1, ranks[i].region, n, "late")
			late.group = set
			ranks[i].send(late.encode())
			if text := ranks[i].ends(1)[1]; !strings.Contains(text, fmt.Sprintf("no group %d", set)) {
				t.Fatalf("round %d, rank %d: %q for a set that was removed", round, i, text)
			}
		}
	}
	for i, h := range hosts {
		must.Soon(t, fmt.Sprint("no operation on host ", i), func() bool { return len(h.real.Pending(time.Now())) == 0 })
	}
}
