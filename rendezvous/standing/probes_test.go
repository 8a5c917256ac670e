package standing

import (
	"context"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"gorun/collective/admit"
	"gorun/contrib/must"
	"gorun/rendezvous/authority"
	"gorun/rendezvous/wire"
)

// slow sends, and gets, 125 kB a second.
type slow struct{ net.Conn }

func (c slow) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	time.Sleep(time.Duration(n) * 8 * time.Microsecond)
	return n, err
}

func (c slow) Write(b []byte) (int, error) {
	time.Sleep(time.Duration(len(b)) * 8 * time.Microsecond)
	return c.Conn.Write(b)
}

// TestLongRequest: a request with the list of many files may come by a slow line; one that does not come is not waited for.
func TestLongRequest(t *testing.T) {
	_, channel := ofKey(t)
	for program, answered := range map[string]bool{strings.Repeat("x", 2<<20): true, "": false} {
		synctest.Test(t, func(t *testing.T) {
			s := &server{cfg: Config{Version: "1", Log: slog.New(slog.DiscardHandler)}, channel: channel, keys: []string{"", ""}}
			ours, theirs := net.Pipe()
			go func() {
				s.meet(t.Context(), (&admit.Door{Timeout: handshakeTimeout}).Enter(theirs))
				theirs.Close()
			}()
			secure, _, err := channel.Client(t.Context(), slow{ours})
			must.Do(t, err)
			if program != "" {
				must.Do(t, wire.NewWriter(secure).Write(&wire.Detach{Version: "2", Program: program}))
			}
			began := time.Now()
			m, err := wire.NewReader(secure).Read()
			if _, is := m.(*wire.Refused); is != answered || time.Since(began) > handshakeTimeout {
				t.Errorf("%d bytes: %+v, %v", len(program), m, err)
			}
			ours.Close()
		})
	}
}

// saves is the disk of an elector.
type saves struct{ Failover }

func (saves) Save(authority.State) error { return nil }

// TestLongValue: a value with the list of many files reaches an elector by a slow line, and so does the vote that brings it back.
func TestLongValue(t *testing.T) {
	client, channel := ofKey(t)
	l := must.Listen(t)
	s := &server{channel: channel, keys: []string{"", ""}, electors: electors{name: "a", failover: saves{}, born: time.Now(), jobs: map[string]*elector{}}}
	over := make(chan struct{})
	go func() {
		defer close(over)
		conn, err := l.Accept()
		if err == nil {
			s.meet(t.Context(), (&admit.Door{Timeout: handshakeTimeout}).Enter(slow{conn}))
			conn.Close()
		}
	}()
	value := make([]byte, 440_000)
	kept, err := client.Keep(t.Context(), l.Addr().String(), &wire.Keep{Job: "ab", Term: 1, Seq: 1, Holder: "b", Electors: []string{"a", "b", "c"}, LeaseMS: 1000, Value: value})
	if err != nil || kept.Seq != 1 {
		t.Errorf("%+v, %v", kept, err)
	}
	<-over
	l.Close()

	limits := make(chan time.Duration, 2)
	e := &s.electors
	e.ask = func(ctx context.Context, _ string, m wire.Message) (wire.Message, error) {
		until, _ := ctx.Deadline()
		limits <- time.Until(until)
		return nil, nil
	}
	e.born = e.born.Add(-time.Hour) // the launcher was not heard since
	var asking sync.WaitGroup
	e.mu.Lock()
	e.act(t.Context(), &asking, e.jobs["ab"], authority.Tick{})
	e.mu.Unlock()
	asking.Wait()
	for range 2 {
		if limit := <-limits; limit < 10*time.Second || limit > authority.Patient(ballot, len(value)) {
			t.Errorf("a vote may take %v", limit)
		}
	}
}

// TestLongVote: a candidate may read a vote with a long value by a slow line, but not for ever.
func TestLongVote(t *testing.T) {
	for bytes, read := range map[int]bool{2 << 20: true, 0: false} {
		synctest.Test(t, func(t *testing.T) {
			ours, theirs := net.Pipe()
			var reading sync.WaitGroup
			defer reading.Wait()
			defer ours.Close()
			if read {
				reading.Go(func() { io.Copy(io.Discard, slow{slow{slow{ours}}}) }) // 42 kB a second
			}
			if got := answer(theirs, &wire.Voted{Value: make([]byte, bytes)}); got != read {
				t.Errorf("a vote of %d bytes is read: %v", bytes, got)
			}
		})
	}
}

// TestProbes: a connection that closes without a byte is not counted as refused, unlike one that speaks or is kept open.
func TestProbes(t *testing.T) {
	_, channel := ofKey(t)
	for name, tt := range map[string]struct {
		client  func(net.Conn)
		refused uint64
	}{
		"probe": {func(c net.Conn) { c.Close() }, 0},
		"other protocol": {func(c net.Conn) {
			io.WriteString(c, "GET / HTTP/1.0\r\n\r\n")
			io.Copy(io.Discard, c)
		}, 1},
		"breaks off": {func(c net.Conn) {
			io.WriteString(c, "\x16")
			c.Close()
		}, 1},
		"silent": {func(c net.Conn) { io.Copy(io.Discard, c) }, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &server{cfg: Config{Log: slog.New(slog.DiscardHandler)}, channel: channel}
			ours, theirs := net.Pipe()
			go tt.client(ours)
			s.meet(t.Context(), (&admit.Door{Timeout: handshakeTimeout}).Enter(theirs))
			theirs.Close()
			got := s.journal.refused
			if noted := s.journal.requests[Request{"connect", "refused"}]; got != tt.refused || noted != tt.refused {
				t.Errorf("%s: counted %d times and noted %d times, want %d", name, got, noted, tt.refused)
			}
		})
	}
}
