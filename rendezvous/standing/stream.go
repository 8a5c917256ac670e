package standing

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"gorun/rendezvous/resume"
	"gorun/rendezvous/wire"
)

const (
	// absence is how long a host's daemon may be away, before its part of the job is given up. The daemons of
	// jobs wait longer (resume.DefaultPatience), so that they do not end while somebody still looks for them.
	absence = 45 * time.Second
	// farewell is how long a goodbye may take.
	farewell = time.Second
)

// Stream is what is said to and by the daemon of a job. It outlives the standing daemon that started that one: its
// goroutine connects it again by the next.
type Stream struct {
	*resume.Stream
	lease   *Lease
	share   wire.Share
	session string
	token   []byte
	remote  net.Addr
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	close   func()
}

// RemoteAddr is where the host was reached.
func (s *Stream) RemoteAddr() net.Addr { return s.remote }

// Close ends the daemon.
func (s *Stream) Close() error {
	s.close()
	return nil
}

// Start starts the job's daemon on a host of the lease. What is read and written is its standard output and
// input; Close, or the end of this process, ends it.
func (l *Lease) Start(ctx context.Context, host string) (*Stream, error) {
	share, ok := l.share(host)
	if !ok {
		return nil, fmt.Errorf("start daemon: no slots on %s were reserved", host)
	}
	id := make([]byte, 8+resume.TokenSize)
	if _, err := rand.Read(id); err != nil {
		return nil, fmt.Errorf("start daemon: %w", err)
	}
	s := &Stream{Stream: resume.New(), lease: l, share: share, session: hex.EncodeToString(id[:8]), token: id[8:]}
	conn, in, err := l.client.enter(ctx, share.Addr, &wire.Serve{Version: l.client.Version, Slots: share.Slots, Session: s.session})
	if err != nil {
		return nil, err
	}
	s.remote = conn.RemoteAddr()
	ctx, s.cancel = context.WithCancel(context.Background())
	s.wg.Go(func() { s.run(ctx, conn, in) })
	s.close = sync.OnceFunc(func() {
		known := s.Over() || s.Connected() && s.Stream.Close(farewell)
		s.Fail(net.ErrClosed)
		s.cancel()
		s.wg.Wait()
		if !known { // it may wait for us somewhere
			ctx, cancel := context.WithTimeout(context.Background(), farewell)
			defer cancel()
			l.client.ask(ctx, s.where().Addr, &wire.Resume{Session: s.session, End: true})
		}
	})
	return s, nil
}

func (l *Lease) share(host string) (wire.Share, bool) {
	for _, s := range l.Shares() {
		if s.Host == host {
			return s, true
		}
	}
	return wire.Share{}, false
}

// where is the host now.
func (s *Stream) where() wire.Share {
	if now, ok := s.lease.share(s.share.Host); ok {
		return now
	}
	return s.share
}

// run sees to it that the stream has a connection, until it is over.
func (s *Stream) run(ctx context.Context, conn net.Conn, in io.Reader) {
	for {
		if _, err := conn.Write(s.token); err != nil {
			conn.Close()
		} else {
			s.Carry(conn, in)
		}
		if s.Over() {
			return
		}
		var err error
		if conn, in, err = s.again(ctx); err != nil {
			s.Fail(err)
			return
		}
	}
}

// again connects anew. A daemon that has no such job is the end, one that does not answer may be being replaced.
func (s *Stream) again(ctx context.Context) (net.Conn, io.Reader, error) {
	ctx, cancel := context.WithTimeout(ctx, absence)
	defer cancel()
	for {
		conn, in, err := s.lease.client.enter(ctx, s.where().Addr, &wire.Resume{Session: s.session})
		var refused *RefusedError
		switch {
		case err == nil:
			return conn, in, nil
		case errors.As(err, &refused):
			return nil, nil, err
		}
		pause := time.NewTimer(retry)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return nil, nil, fmt.Errorf("the connection to the daemon was not to be had again: %w", err)
		}
	}
}

// enter asks for what becomes a connection to the daemon of a job.
func (c Client) enter(ctx context.Context, addr string, m wire.Message) (net.Conn, io.Reader, error) {
	conn, err := c.dial(ctx, addr)
	if err != nil {
		return nil, nil, err
	}
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if err := wire.NewWriter(conn).Write(m); err != nil {
		conn.Close()
		return nil, nil, err
	}
	in := bufio.NewReaderSize(conn, 64<<10) // wire's reader uses it as it is
	msg, err := wire.NewReader(in).Read()
	switch msg := msg.(type) {
	case *wire.Granted:
		return conn, in, nil
	case *wire.Refused:
		err = &RefusedError{msg.Text, msg.Hint}
	case nil:
		err = broken(err)
	default:
		err = fmt.Errorf("unexpected %T", msg)
	}
	conn.Close()
	return nil, nil, err
}
