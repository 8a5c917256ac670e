package standing

import (
	"context"
	"slices"
	"sync"
	"time"

	"gorun/rendezvous/resume"
	"gorun/rendezvous/wire"
)

// Lease holds slots until Close. Its goroutine receives changes, and registers the slots again with the next queue
// holder when the present one is lost.
type Lease struct {
	client  Client
	addr    string // the address the user gave
	request wire.Reserve
	changes chan []wire.Share
	cancel  context.CancelFunc
	wg      sync.WaitGroup

	// ReconnectTimeout is how long the daemons that Start starts wait for another launcher, 0 for not at all. It is set
	// before Start.
	ReconnectTimeout time.Duration
	// Silence is how long Adopt waits for a host that does not answer, 0 for the default. It is set before Adopt.
	Silence time.Duration
	// Encrypt says that the job encrypts. It is set before Start.
	Encrypt bool

	demands bool // the cluster refuses jobs that do not

	mu     sync.Mutex
	shares []wire.Share
	others []string
}

// retry is the pause between attempts to find the queue again.
const retry = 250 * time.Millisecond

func newLease(c Client, addr string, r wire.Reserve, g *grant) *Lease {
	ctx, cancel := context.WithCancel(context.Background())
	l := &Lease{client: c, addr: addr, request: r, changes: make(chan []wire.Share, 1), cancel: cancel, shares: r.Held}
	if g != nil {
		l.shares, l.others, l.demands = g.Shares, g.Others, g.Encrypt
	}
	l.wg.Go(func() { l.keep(ctx, g) })
	return l
}

// Shares returns the slots that the job has.
func (l *Lease) Shares() []wire.Share {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.shares
}

// DemandsEncryption reports whether the cluster refuses jobs that do not encrypt.
func (l *Lease) DemandsEncryption() bool { return l.demands }

// Changes delivers the slots of an elastic job whenever they change. A slow reader gets the latest only.
func (l *Lease) Changes() <-chan []wire.Share { return l.changes }

// Close gives the slots back.
func (l *Lease) Close() {
	l.cancel()
	l.wg.Wait()
}

// keep listens until Close, and finds the queue again when the connection ends.
func (l *Lease) keep(ctx context.Context, g *grant) {
	for next := ""; ; {
		if g != nil {
			next = l.listen(ctx, g)
			g = nil
		}
		for _, addr := range append([]string{next, l.addr}, l.elsewhere()...) {
			if addr == "" || ctx.Err() != nil {
				continue
			}
			r := l.request
			r.Held = l.Shares()
			if got, redirect, err := l.client.reserve(ctx, addr, &r, nil); err == nil {
				g, next = got, redirect
				break
			}
			next = ""
		}
		if g != nil {
			l.take(&g.Granted)
			continue
		}
		if !resume.Pause(ctx, retry) {
			return
		}
	}
}

// listen receives changes until the connection ends. It returns the address of the next queue holder, if it was sent.
func (l *Lease) listen(ctx context.Context, g *grant) (next string) {
	defer g.conn.Close()
	defer context.AfterFunc(ctx, func() { g.conn.Close() })()
	for {
		msg, err := g.in.Read()
		if err != nil {
			return ""
		}
		switch msg := msg.(type) {
		case *wire.Granted:
			l.take(msg)
		case *wire.Elsewhere:
			return msg.Addr
		}
	}
}

func (l *Lease) take(g *wire.Granted) {
	l.mu.Lock()
	same := slices.Equal(l.shares, g.Shares)
	l.shares, l.others = g.Shares, g.Others
	l.mu.Unlock()
	if same {
		return
	}
	select {
	case <-l.changes: // replaces an outdated value that was not read
	default:
	}
	l.changes <- g.Shares
}

func (l *Lease) elsewhere() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.others
}
