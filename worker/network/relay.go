package network

import (
	"context"
	"crypto/subtle"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"gorun/collective/admit"
	"gorun/collective/tcp"
)

const (
	// relayTimeout is how long a guest may take to send the word, and relayLimit, then to take the binary.
	relayTimeout = 5 * time.Second
	relayLimit   = time.Minute
	// relayGuests is how many may take it at once.
	relayGuests = 8
)

// relay hands what hosts run to hosts of the job that lack it. Nothing that a guest sends is read but the word,
// and what it gets is no secret; it checks the hash by itself.
type relay struct {
	listener net.Listener
	word     string
	program  []byte // nil for the file binary
	binary   string
}

// ListenFor listens at this host's address for hosts that want something.
func (n *Network) ListenFor(ctx context.Context, what string) (net.Listener, error) {
	return listenFor(ctx, n.bind, what)
}

func listenFor(ctx context.Context, bind, what string) (net.Listener, error) {
	l, err := (&net.ListenConfig{Control: tcp.SmallSegments}).Listen(ctx, "tcp", net.JoinHostPort(bind, "0"))
	if err != nil {
		return nil, fmt.Errorf("listen for hosts that miss %s: %w", what, err)
	}
	return l, nil
}

// openRelay listens at an address for hosts that want the binary.
func openRelay(ctx context.Context, bind, word string, program []byte, binary string) (*relay, error) {
	l, err := listenFor(ctx, bind, "the binary")
	if err != nil {
		return nil, err
	}
	return &relay{listener: l, word: word, program: program, binary: binary}, nil
}

func (r *relay) port() int { return r.listener.Addr().(*net.TCPAddr).Port }

// run serves until ctx ends, and returns when no guest is connected any more.
func (r *relay) run(ctx context.Context) {
	var guests sync.WaitGroup
	defer guests.Wait()
	door := &admit.Door{Timeout: relayTimeout}
	stop := context.AfterFunc(ctx, func() { r.listener.Close() })
	defer stop()
	room := make(chan struct{}, relayGuests)
	for {
		conn, err := r.listener.Accept()
		if err != nil {
			r.listener.Close() // out of descriptors, if not closed: the launcher sends the binary then
			return
		}
		guest := door.Enter(conn)
		guests.Go(func() {
			defer guest.Close()
			defer context.AfterFunc(ctx, func() { guest.Close() })()
			r.serve(guest, room)
		})
	}
}

func (r *relay) serve(guest *admit.Conn, room chan struct{}) {
	said := make([]byte, len(r.word)+1)
	if _, err := io.ReadFull(guest, said); err != nil || subtle.ConstantTimeCompare(said, []byte(r.word+"\n")) != 1 {
		return
	}
	guest.Known()
	select {
	case room <- struct{}{}:
		defer func() { <-room }()
	default:
		return // the launcher sends it the binary
	}
	conn := guest.Conn // by which the kernel sends a file itself
	conn.SetDeadline(time.Now().Add(relayLimit))
	if r.program != nil {
		conn.Write(r.program)
		return
	}
	binary, err := os.Open(r.binary)
	if err != nil {
		return
	}
	defer binary.Close()
	io.Copy(conn, binary) // the guest sees by the hash whether all of it came
}
