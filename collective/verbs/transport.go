package verbs

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"
)

// Config is what a Transport is made of. Zero values of the second part mean the defaults.
type Config struct {
	Provider Provider
	Ports    []Port   // of it
	Devices  []string // that may be used, nil for all
	// Retry is called when a stream that is on TCP should be opened again, because RDMA may work now. It returns false if
	// there is no link to the peer any more.
	Retry func(peer, stream int) bool
	// Problem is called when a stream is not carried by RDMA, or no longer. Any goroutine may call it.
	Problem func(peer int, err error)
	// Carries is called when RDMA carries a stream to a peer, by a queue pair on that port. It may be nil.
	Carries func(peer int, at Place)
	Log     *slog.Logger

	Size   Size // of the streams that carry large segments; 2 MiB, 64 messages
	Small  Size // of the first stream; 256 KiB, 64 messages
	Tuning Tuning
	Probe  time.Duration // how long the first bytes over a queue pair may take; 1 s
	Driver time.Duration // how long a device's driver may take to make or connect a queue pair; 2 s
}

// Transport carries streams over RDMA where both sides can.
type Transport struct {
	cfg  Config
	born time.Time
	ctx  context.Context
	end  context.CancelFunc
	goes sync.WaitGroup // goroutines of connections, and retries

	mu      sync.Mutex
	streams map[streamID]*streamState
	up      map[*Conn]bool    // connections that carry streams
	opening map[net.Conn]bool // TCP connections over which the sides agree on a queue pair
	ports   []Port            // as they were when a queue pair was last opened
	hanging int               // calls of drivers that take too long
	held    int               // queue pairs that exist, or are about to
	freed   sync.Cond         // held is 0, or a pause is over
	paused  time.Duration     // until when there are no queue pairs

	failures uint64 // queue pairs that carried a stream and failed
}

type streamID struct{ peer, stream int }

// streamState is the state of one stream.
type streamState struct {
	trial
	on      int      // queue pairs that carry it; while it is replaced, also the old one
	waits   bool     // retry is to open it again; false if only the peer knows why it is on TCP
	retries bool     // there is a goroutine of retry
	from    net.Addr // this side's address in its latest connection; a host may get another one
}

// New returns a transport. Close must be called.
func New(cfg Config) *Transport {
	cfg.Size = cmp.Or(cfg.Size, Size{Ring: 2 << 20, Depth: 64})
	cfg.Small = cmp.Or(cfg.Small, Size{Ring: 256 << 10, Depth: 64})
	cfg.Tuning = cmp.Or(cfg.Tuning, DefaultTuning)
	cfg.Probe = cmp.Or(cfg.Probe, time.Second)
	cfg.Driver = cmp.Or(cfg.Driver, 2*time.Second)
	for _, s := range []Size{cfg.Size, cfg.Small} {
		if s.Ring < 1 || s.Ring > maxRing || s.Depth < minDepth || s.Depth > maxDepth {
			panic(fmt.Sprintf("verbs: rings of %d bytes (1 to %d) and %d messages (%d to %d)", s.Ring, maxRing, s.Depth,
				minDepth, maxDepth))
		}
	}
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	t := &Transport{cfg: cfg, born: time.Now(), ports: cfg.Ports, streams: map[streamID]*streamState{}, up: map[*Conn]bool{},
		opening: map[net.Conn]bool{}}
	t.freed.L = &t.mu
	t.ctx, t.end = context.WithCancel(context.Background())
	return t
}

// mostClose bounds how long Close waits for drivers.
const mostClose = 5 * time.Second

// Close returns when all goroutines have ended, but for those in a driver that hangs. The link must have closed its
// connections.
func (t *Transport) Close() {
	t.end()
	ended := make(chan struct{})
	go func() {
		t.goes.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(mostClose):
		t.cfg.Log.Warn("a device's driver hangs, and its queue pairs stay open")
	}
}

// Up returns how many streams RDMA carries now.
func (t *Transport) Up() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.up)
}

// Failures returns how many queue pairs that carried a stream this side has found broken.
func (t *Transport) Failures() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failures
}

func (t *Transport) now() time.Duration { return time.Since(t.born) }

// pair returns a queue pair that can be connected.
func (t *Transport) pair(from net.Addr, size Size) (Pair, Place, error) {
	place, err := t.place(from)
	if err != nil {
		return nil, place, err
	}
	pair, err := t.cfg.Provider.Open(place, size)
	if err == nil {
		if err = pair.Receive(size.Depth); err != nil {
			pair.Close()
		}
	}
	if err != nil {
		return nil, place, fmt.Errorf("open queue pair on %s port %d: %w", place.Device, place.Number, err)
	}
	return pair, place, nil
}

// Device names the RDMA device for connections from an address, "" if there is none. It goes by the ports as they were
// when a queue pair was last opened, so that it calls no driver.
func (t *Transport) Device(from net.Addr) string {
	t.mu.Lock()
	ports := t.ports
	t.mu.Unlock()
	at, err := t.chooseOf(ports, from)
	if err != nil {
		return ""
	}
	return at.Device
}

// place returns where a queue pair goes beside a connection from the given address.
func (t *Transport) place(from net.Addr) (Place, error) {
	ports, err := t.cfg.Provider.Ports()
	if err != nil {
		return Place{}, err
	}
	t.mu.Lock()
	t.ports = ports
	t.mu.Unlock()
	return t.chooseOf(ports, from)
}

func (t *Transport) chooseOf(ports []Port, from net.Addr) (Place, error) {
	at, err := netip.ParseAddrPort(from.String())
	if err != nil {
		return Place{}, fmt.Errorf("find RDMA port: %w", err)
	}
	return choose(ports, at.Addr(), t.cfg.Devices, t.cfg.Tuning)
}
