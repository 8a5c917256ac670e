package collective_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gorun/collective"
	"gorun/collective/kernel"
	"gorun/collective/link"
	"gorun/collective/tcp"
	"gorun/contrib/must"
)

// realWorld is a world of hosts with real links over loopback.
type realWorld struct {
	engines []*collective.Engine
	meshes  []*link.Mesh
	probers []*collective.LinkProber
	ranks   int // per host
	late    *time.Timer
}

func newRealWorld(t testing.TB, hosts, ranks int, cfg collective.Config) *realWorld {
	w := &realWorld{ranks: ranks, late: time.NewTimer(patience)}
	world := collective.EngineWorld{Epoch: 1, Size: hosts * ranks}
	addrs := make([]string, hosts)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for i, l := range even(hosts, ranks) {
		world.Hosts = append(world.Hosts, collective.HostRanks{ID: i, Name: fmt.Sprintf("host%d", i+1), Ranks: l})
	}
	var options tcp.Options
	for i := range hosts {
		listener, err := options.Listen(ctx, "127.0.0.1:0")
		must.Do(t, err)
		addrs[i] = listener.Addr().String()
		handler := &lateHandler{}
		mesh, err := link.NewMesh(link.Config{Self: i, Job: "test", Key: make([]byte, 32), Listener: listener, Handler: handler,
			Dial: func(ctx context.Context, peer, _ int) (net.Conn, error) { return options.Dial(ctx, addrs[peer:peer+1]) }})
		must.Do(t, err)
		cfg := cfg
		cfg.Transport = mesh
		e := collective.New(cfg)
		handler.LinkProber = collective.NewLinkProber(e, mesh)
		w.probers = append(w.probers, handler.LinkProber)
		world.Self = i
		must.Do(t, e.SetWorld(world))
		w.engines, w.meshes = append(w.engines, e), append(w.meshes, mesh)
		running.Go(func() { mesh.Run(ctx) })
		running.Go(func() { e.Run(ctx) })
	}
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	var connected sync.WaitGroup
	for i, m := range w.meshes {
		connected.Go(func() {
			var peers []int
			for p := range hosts {
				if p != i {
					peers = append(peers, p)
				}
			}
			ctx, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			if err := m.Connect(ctx, peers); err != nil {
				t.Error(err)
			}
		})
	}
	connected.Wait()
	return w
}

// lateHandler is an engine that is made after its mesh.
type lateHandler struct{ *collective.LinkProber }

// gang waits for the parts of one operation after the other.
type gang struct {
	typ  kernel.Type // of 4 bytes; int32 if 0
	left atomic.Int32
	done chan error
}

func (g *gang) Complete(_ uint64, r collective.Result) {
	if r.Err != nil {
		select {
		case g.done <- r.Err:
		default:
		}
	}
	if r.Buffer != nil {
		r.Buffer.Release()
	}
	if g.left.Add(-1) == 0 {
		g.done <- nil
	}
}

// round runs an allreduce in place of every rank's buffer.
func (w *realWorld) round(g *gang, buffers [][]byte) error {
	g.left.Store(int32(len(buffers)))
	for rank, b := range buffers {
		err := w.engines[rank/w.ranks].Submit(rank, collective.Request{Kind: collective.Allreduce, Name: "x", Type: cmp.Or(g.typ, kernel.Int32),
			Op: kernel.Sum, Pre: 1, Post: 1, Shape: []int{len(b) / 4}, In: b, Out: b, Client: g})
		if err != nil {
			return err
		}
	}
	select {
	case err := <-g.done:
		return err
	case <-w.late.C:
		return fmt.Errorf("not finished: %+v", w.engines[0].Pending(epochStart))
	}
}

func TestOverRealLinks(t *testing.T) {
	for _, shape := range [][2]int{{2, 1}, {2, 2}, {3, 2}} {
		t.Run(fmt.Sprintf("%dx%d", shape[0], shape[1]), func(t *testing.T) {
			w := newRealWorld(t, shape[0], shape[1], collective.Config{Segment: 128 << 10})
			g := &gang{done: make(chan error, 1)}
			size := shape[0] * shape[1]
			for _, n := range []int{1, 3000, 30_000, 200_003} {
				buffers := make([][]byte, size)
				inputs := make([][]complex128, size)
				for rank := range buffers {
					inputs[rank] = sample(kernel.Int32, kernel.Sum, rank, n)
				}
				want := fold(kernel.Int32, kernel.Sum, 1, 1, inputs)
				for range 3 {
					for rank := range buffers {
						buffers[rank] = encode(kernel.Int32, inputs[rank])
					}
					must.Do(t, w.round(g, buffers))
					for rank, b := range buffers {
						if !bytes.Equal(b, want) {
							t.Fatalf("%d elements: rank %d has another result", n, rank)
						}
					}
				}
			}
		})
	}
}
