package verbstest

import (
	"bytes"
	"cmp"
	"context"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"gorun/collective/link"
	"gorun/collective/tcp"
	"gorun/collective/verbs"
)

// Exercised is what Exercise takes.
type Exercised struct {
	Provider func() verbs.Provider // of each of two hosts
	Segments int                   // that each host sends
	Disturb  func(round int)       // is called whenever a few more segments have arrived; nil for peace
	Config   verbs.Config          // without Provider, Tuning and Retry
	// DisturbTransport is the same with the transport of one of the hosts.
	DisturbTransport func(round int, tr *verbs.Transport)
}

const (
	// roundSegments are how many segments arrive at least before the next disturbance: on a busy machine too, segments
	// then get through.
	roundSegments = 10
	patience      = 3 * time.Minute // until a round
)

// Exercise has two hosts send each other segments of many sizes over a link with four streams. Each must arrive once
// and unharmed, and in the end, without disturbance, RDMA must carry all streams. It returns the totals of one host.
func Exercise(t *testing.T, e Exercised) link.Totals {
	t.Helper()
	var hosts [2]*peer
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer func() {
		stop()
		running.Wait()
	}()
	for i := range hosts {
		listener, err := tcp.Options{}.Listen(ctx, "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		hosts[i] = &peer{t: t, listener: listener, want: e.Segments, got: map[uint64]bool{}}
	}
	var first *verbs.Transport
	for i, h := range hosts {
		cfg := e.Config
		cfg.Provider, cfg.Tuning = e.Provider(), verbs.DefaultTuning
		cfg.Tuning.Rest = time.Millisecond
		cfg.Retry = func(peer, stream int) bool { return h.mesh.Reopen(peer, stream) }
		transport := verbs.New(cfg)
		first = cmp.Or(first, transport)
		var err error
		h.mesh, err = link.NewMesh(link.Config{Self: i, Job: "job", Key: bytes.Repeat([]byte{1}, 32), Handler: h,
			Listener: h.listener, Upgrade: transport.Upgrade,
			Dial: func(ctx context.Context, peer, _ int) (net.Conn, error) {
				return tcp.Options{}.Dial(ctx, []string{hosts[peer].listener.Addr().String()})
			}})
		if err != nil {
			t.Fatal(err)
		}
		running.Go(func() {
			if err := h.mesh.Run(ctx); err != nil {
				t.Error(err)
			}
			transport.Close()
		})
	}
	var busy sync.WaitGroup
	for i, h := range hosts {
		busy.Go(func() {
			if err := h.mesh.Connect(ctx, []int{1 - i}); err != nil {
				t.Error(err)
			}
		})
	}
	busy.Wait()
	begin := time.Now()
	for i, h := range hosts {
		busy.Go(func() { h.send(1 - i) })
	}
	arrived := func() int { return hosts[0].arrived() + hosts[1].arrived() }
	for round, before, end := 0, 0, begin.Add(patience); before < 2*e.Segments; time.Sleep(time.Millisecond) {
		switch now := arrived(); {
		case now >= before+roundSegments || now == 2*e.Segments:
			before, end = now, time.Now().Add(patience)
		case time.Now().After(end):
			t.Fatalf("only %d of %d segments have arrived", now, 2*e.Segments)
		default:
			continue
		}
		if e.Disturb != nil {
			e.Disturb(round)
		}
		if e.DisturbTransport != nil {
			e.DisturbTransport(round, first)
		}
		round++
	}
	busy.Wait()
	took := time.Since(begin)
	status, _ := hosts[0].mesh.Status(1)
	totals := hosts[0].mesh.Totals()
	t.Logf("%d of %d bytes went over RDMA, %d streams were opened, %d segments sent again, in %v", totals.UpgradedBytes,
		totals.SentBytes, status.Attached, totals.ResentSegments, took)
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if status, _ := hosts[0].mesh.Status(1); status.Upgraded == 4 {
			return totals
		} else if time.Now().After(end) {
			t.Fatalf("RDMA carries %d of %d streams in the end", status.Upgraded, status.Streams)
		}
	}
}

// peer is one of the hosts. It is the handler of its mesh.
type peer struct {
	t        *testing.T
	mesh     *link.Mesh
	listener net.Listener
	want     int

	mu  sync.Mutex
	got map[uint64]bool
}

// noise holds the bytes that segments carry.
var noise = func() []byte {
	b := make([]byte, 1<<20)
	rand.NewChaCha8([32]byte{}).Read(b)
	return b
}()

// content returns what the segment of that number consists of: no two have the same bytes.
func content(op uint64) []byte {
	at := int(op*8191) % (len(noise) - 1<<18)
	return noise[at : at+length(op)]
}

func length(op uint64) int { return []int{0, 8, 1000, 5000, 70_000, 262_144}[op%6] }

// inFlight bounds what a host has sent and its peer has not acknowledged.
type inFlight chan struct{}

func (inFlight) Prepare(*link.Segment) {}
func (c inFlight) Acked(*link.Segment) { <-c }

func (h *peer) send(to int) {
	flying := make(inFlight, 64)
	for op := range uint64(h.want) {
		flying <- struct{}{}
		h.mesh.Send(to, &link.Segment{Header: link.Header{Kind: link.Data, Epoch: 1, Op: op}, Payload: content(op), Owner: flying})
	}
}

func (h *peer) arrived() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.got)
}

// Place implements link.Handler.
func (h *peer) Place(_ int, head link.Header) ([]byte, error) {
	if head.Length > 16<<10 {
		return make([]byte, head.Length), nil
	}
	return nil, nil
}

// Deliver implements link.Handler.
func (h *peer) Deliver(_ int, head link.Header, payload []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !bytes.Equal(content(head.Op), payload) {
		h.t.Errorf("segment %d has wrong bytes", head.Op)
	}
	if h.got[head.Op] {
		h.t.Errorf("segment %d came twice", head.Op)
	}
	h.got[head.Op] = true
}
