package verbstest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
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
	Address  string                // of both; 127.0.0.1
	Segments int                   // that each host sends
	Disturb  func(round int)       // is called every few milliseconds while segments are in flight; nil for peace
	Config   verbs.Config          // without Provider, Tuning and Retry
	// DisturbTransport is the same with the transport of one of the hosts.
	DisturbTransport func(round int, tr *verbs.Transport)
}

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
		listener, err := tcp.Options{}.Listen(ctx, net.JoinHostPort(cmp.Or(e.Address, "127.0.0.1"), "0"))
		if err != nil {
			t.Fatal(err)
		}
		hosts[i] = &peer{t: t, listener: listener, want: e.Segments, got: map[uint64]bool{}, all: make(chan struct{})}
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
	for round, end := 0, time.Now().Add(3*time.Minute); hosts[0].arriving() || hosts[1].arriving(); round++ {
		time.Sleep(5 * time.Millisecond)
		if e.Disturb != nil {
			e.Disturb(round)
		}
		if e.DisturbTransport != nil {
			e.DisturbTransport(round, first)
		}
		if time.Now().After(end) {
			t.Fatalf("only %d and %d segments have arrived", len(hosts[0].got), len(hosts[1].got))
		}
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
	all chan struct{} // closed when all segments have arrived
}

// content fills b with what the segment of that number consists of.
func content(op uint64, b []byte) {
	for i := 0; i < len(b); i += 8 {
		var word [8]byte
		binary.LittleEndian.PutUint64(word[:], op<<24+uint64(i))
		copy(b[i:], word[:])
	}
}

func length(op uint64) int { return []int{0, 8, 1000, 5000, 70_000, 262_144}[op%6] }

// inFlight bounds what a host has sent and its peer has not acknowledged.
type inFlight chan struct{}

func (inFlight) Prepare(*link.Segment) {}
func (c inFlight) Acked(*link.Segment) { <-c }

func (h *peer) send(to int) {
	flying := make(inFlight, 64)
	for op := range uint64(h.want) {
		payload := make([]byte, length(op))
		content(op, payload)
		flying <- struct{}{}
		h.mesh.Send(to, &link.Segment{Header: link.Header{Kind: link.Data, Epoch: 1, Op: op}, Payload: payload, Owner: flying})
	}
}

func (h *peer) arriving() bool {
	select {
	case <-h.all:
		return false
	default:
		return true
	}
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
	b := make([]byte, len(payload))
	content(head.Op, b)
	h.mu.Lock()
	defer h.mu.Unlock()
	if !bytes.Equal(b, payload) || len(b) != length(head.Op) || h.got[head.Op] {
		h.t.Errorf("segment %d has wrong bytes, or came twice", head.Op)
	}
	if h.got[head.Op] = true; len(h.got) == h.want {
		close(h.all)
	}
}
