package verbs_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"gorun/collective/link"
	"gorun/collective/tcp"
	"gorun/collective/verbs"
	"gorun/collective/verbs/verbstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var localhost = netip.MustParseAddr("127.0.0.1")

// connected returns both ends of a TCP connection.
func connected(t *testing.T) (a, b net.Conn) {
	t.Helper()
	l, err := tcp.Options{}.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if a, err = (tcp.Options{}).Dial(t.Context(), []string{l.Addr().String()}); err != nil {
		t.Fatal(err)
	}
	if b, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

// upgraded returns what two transports make of a TCP connection.
func upgraded(t *testing.T, one, other *verbs.Transport) (a, b net.Conn) {
	t.Helper()
	plain, accepted := connected(t)
	var wg sync.WaitGroup
	var failed error
	wg.Go(func() { b, failed = other.Upgrade(t.Context(), accepted, 0, 1) })
	a, err := one.Upgrade(t.Context(), plain, 1, 1)
	wg.Wait()
	if err := errors.Join(err, failed); err != nil {
		t.Fatal(err)
	}
	return a, b
}

func transport(t *testing.T, cfg verbs.Config) *verbs.Transport {
	tr := verbs.New(cfg)
	t.Cleanup(tr.Close)
	return tr
}

// What is written arrives, in every size of pieces, and both ends may write at once.
func TestConn(t *testing.T) {
	fabric := verbstest.New(1)
	for _, size := range []verbs.Size{{Ring: 2 << 20, Depth: 64}, {Ring: 16 << 10, Depth: 4}, {Ring: 8 << 20, Depth: 127}} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			cfg := verbs.Config{Provider: fabric.Host(localhost), Size: size,
				Problem: func(_ int, err error) { t.Error(err) }}
			a, b := upgraded(t, transport(t, cfg), transport(t, cfg))
			var wg sync.WaitGroup
			for seed, ends := range [][2]net.Conn{{a, b}, {b, a}} {
				text := make([]byte, 3<<20+seed)
				rand.NewChaCha8([32]byte{byte(seed)}).Read(text)
				wg.Go(func() {
					rng := rand.New(rand.NewPCG(uint64(seed), 1))
					rest := text
					for len(rest) > 0 {
						n := min(1+rng.IntN(1+rng.IntN(300_000)), len(rest))
						up := ends[0].(link.Upgraded)
						var err error
						switch half := rng.IntN(n); rng.IntN(3) {
						case 0:
							_, err = up.Write(rest[:n])
						case 1:
							err = up.WriteBuffers([][]byte{rest[:half], nil, rest[half:n]})
						default:
							n, err = up.WriteNow(rest[:half], rest[half:n])
						}
						if err != nil {
							t.Error(err)
							return
						}
						rest = rest[n:]
					}
				})
				wg.Go(func() {
					got := make([]byte, len(text))
					if _, err := io.ReadFull(ends[1], got); err != nil || !bytes.Equal(got, text) {
						t.Errorf("error %v, or other bytes", err)
					}
				})
			}
			wg.Wait()
			a.Close()
			if _, err := b.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
				t.Errorf("after the other end was closed: %v", err)
			}
		})
	}
	if err := fabric.Misused(); err != nil {
		t.Error(err)
	}
}

// A stream stays on TCP where a queue pair cannot be had, and the reason is reported where it is known.
func TestStaysOnTCP(t *testing.T) {
	fabric, other := verbstest.New(1), verbstest.New(2)
	down := verbstest.New(3)
	down.Down(true)
	here := verbs.Config{Provider: fabric.Host(localhost)}
	for name, c := range map[string]struct {
		there    verbs.Config
		reported bool // here, too
	}{
		"no port with the address": {verbs.Config{Provider: fabric.Host(netip.MustParseAddr("10.0.0.1"))}, false},
		"port down":                {verbs.Config{Provider: down.Host(localhost)}, false},
		"another device wanted":    {verbs.Config{Provider: fabric.Host(localhost), Devices: []string{"mlx5_0"}}, false},
		"other sizes":              {verbs.Config{Provider: fabric.Host(localhost), Size: verbs.Size{Ring: 4096, Depth: 8}}, true},
		"no path":                  {verbs.Config{Provider: other.Host(localhost), Probe: time.Second}, true},
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			var reports [2][]error
			report := func(i int) func(int, error) {
				return func(_ int, err error) {
					mu.Lock()
					defer mu.Unlock()
					reports[i] = append(reports[i], err)
				}
			}
			mine, theirs := here, c.there
			mine.Problem, theirs.Problem = report(0), report(1)
			a, b := upgraded(t, transport(t, mine), transport(t, theirs))
			for _, conn := range []net.Conn{a, b} {
				if _, tcp := conn.(*net.TCPConn); !tcp {
					t.Errorf("%T carries it", conn)
				}
			}
			if _, err := a.Write([]byte("x")); err != nil {
				t.Error(err)
			}
			var got [1]byte
			if _, err := io.ReadFull(b, got[:]); err != nil || got[0] != 'x' {
				t.Errorf("%q, %v", got, err)
			}
			if len(reports[1]) != 1 || (len(reports[0]) == 1) != c.reported {
				t.Errorf("reported: %v", reports)
			}
		})
	}
	if n := fabric.Pairs() + other.Pairs(); n != 0 {
		t.Errorf("%d pairs are left", n)
	}
}

// host is a mesh whose streams are carried by RDMA.
type host struct {
	mesh      *link.Mesh
	transport *verbs.Transport
	listener  net.Listener
	t         *testing.T

	mu  sync.Mutex
	got map[uint64]bool
	all chan struct{} // closed when want segments have arrived
}

const want = 20_000

// content fills b with what the segment of that number consists of.
func content(op uint64, b []byte) {
	for i := 0; i < len(b); i += 8 {
		var word [8]byte
		binary.LittleEndian.PutUint64(word[:], op<<24+uint64(i))
		copy(b[i:], word[:])
	}
}

func length(op uint64) int { return []int{0, 8, 1000, 5000, 70_000, 262_144}[op%6] }

func (h *host) Place(_ int, head link.Header) ([]byte, error) {
	if head.Length > 16<<10 {
		return make([]byte, head.Length), nil
	}
	return nil, nil
}

func (h *host) Deliver(_ int, head link.Header, payload []byte) {
	b := make([]byte, len(payload))
	content(head.Op, b)
	h.mu.Lock()
	defer h.mu.Unlock()
	if !bytes.Equal(b, payload) || len(b) != length(head.Op) || h.got[head.Op] {
		h.t.Errorf("segment %d has wrong bytes, or came twice", head.Op)
	}
	if h.got[head.Op] = true; len(h.got) == want {
		close(h.all)
	}
}

// credits bounds what is in flight.
type credits chan struct{}

func (credits) Prepare(*link.Segment) {}
func (c credits) Acked(*link.Segment) { <-c }

// Queue pairs die within segments, and the ports go down and come up: the link carries everything once, in part by TCP,
// and goes over RDMA in the end.
func TestLinkOutlivesQueuePairs(t *testing.T) {
	fabric := verbstest.New(27)
	var hosts [2]*host
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for i := range hosts {
		listener, err := tcp.Options{}.Listen(ctx, "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		hosts[i] = &host{t: t, listener: listener, got: map[uint64]bool{}, all: make(chan struct{})}
	}
	for i, h := range hosts {
		h.transport = verbs.New(verbs.Config{Provider: fabric.Host(localhost), Size: verbs.Size{Ring: 1 << 20, Depth: 16},
			Rest: time.Millisecond, MostRest: 20 * time.Millisecond,
			Retry: func(peer, stream int) { h.mesh.Reopen(peer, stream) }})
		var err error
		h.mesh, err = link.NewMesh(link.Config{Self: i, Job: "job", Key: bytes.Repeat([]byte{1}, 32), Handler: h,
			Listener: h.listener, Upgrade: h.transport.Upgrade,
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
			h.transport.Close()
		})
	}
	defer func() {
		stop()
		running.Wait()
		if n := fabric.Pairs(); n != 0 || fabric.Misused() != nil {
			t.Errorf("%d pairs are left; misused: %v", n, fabric.Misused())
		}
	}()
	var connecting sync.WaitGroup
	for i, h := range hosts {
		connecting.Go(func() {
			if err := h.mesh.Connect(ctx, []int{1 - i}); err != nil {
				t.Error(err)
			}
		})
	}
	connecting.Wait()
	var sending sync.WaitGroup
	for i, h := range hosts {
		sending.Go(func() {
			flying := make(credits, 64)
			for op := range uint64(want) {
				payload := make([]byte, length(op))
				content(op, payload)
				flying <- struct{}{}
				h.mesh.Send(1-i, &link.Segment{Header: link.Header{Kind: link.Data, Epoch: 1, Op: op}, Payload: payload, Owner: flying})
			}
		})
	}
	kills, done := 0, make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-hosts[0].all:
				return
			case <-time.After(5 * time.Millisecond):
			}
			if fabric.Kill() {
				kills++
			}
			if i%100 == 50 {
				fabric.Down(true)
				time.Sleep(5 * time.Millisecond)
				fabric.Down(false)
			}
		}
	}()
	for _, h := range hosts {
		select {
		case <-h.all:
		case <-time.After(3 * time.Minute):
			t.Fatalf("only %d segments arrived", len(h.got))
		}
	}
	<-done
	sending.Wait()
	status, _ := hosts[0].mesh.Status(1)
	totals := hosts[0].mesh.Totals()
	t.Logf("%d queue pairs killed, %d streams opened, %d of %d bytes over RDMA", kills, status.Attached, totals.UpgradedBytes, totals.SentBytes)
	if kills == 0 || totals.UpgradedBytes == 0 || totals.ResentSegments == 0 {
		t.Errorf("%d queue pairs died, %d bytes went over RDMA, %d segments were sent again", kills, totals.UpgradedBytes, totals.ResentSegments)
	}
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if status, _ := hosts[0].mesh.Status(1); status.Upgraded == 4 {
			return
		} else if time.Now().After(end) {
			t.Fatalf("%d of %d streams are on RDMA in the end", status.Upgraded, status.Streams)
		}
	}
}
