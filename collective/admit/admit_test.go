package admit

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gorun/collective/admit/admittest"
	"gorun/contrib/must"
)

func TestOrigin(t *testing.T) {
	for addr, want := range map[string]string{
		"10.0.0.1:5":             "10.0.0.1/32",
		"[::ffff:10.0.0.1]:5":    "10.0.0.1/32",
		"[2001:db8:1:2:3::4]:5":  "2001:db8:1:2::/64",
		"[fe80::1%lo]:5":         "fe80::/64",
		"[2001:db8:1:2::ffff]:6": "2001:db8:1:2::/64",
	} {
		if got := Origin(net.TCPAddrFromAddrPort(netip.MustParseAddrPort(addr))); got.String() != want {
			t.Errorf("%s comes from %v, want %s", addr, got, want)
		}
	}
}

// pipe is a connection from an address.
type pipe struct {
	net.Conn
	from net.Addr
}

func (p pipe) RemoteAddr() net.Addr { return p.from }

// from returns a connection from address number n, and the peer's end.
func from(n byte) (conn, peer net.Conn) {
	conn, peer = net.Pipe()
	return pipe{conn, &net.TCPAddr{IP: net.IPv4(10, 0, 0, n), Port: 1}}, peer
}

// TestHostileMakeRoom: the oldest connection goes that has not authenticated, of the same address if that has too many.
// The newer one does not wait.
func TestHostileMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &Door{Timeout: time.Minute}
		var all []*Conn
		enter := func(n byte) *Conn {
			conn, _ := from(n)
			c := d.Enter(conn)
			all = append(all, c)
			return c
		}
		gone := func(c *Conn) bool {
			c.SetReadDeadline(time.Now())
			_, err := c.Read(make([]byte, 1))
			if crowded := errors.Is(c.Why(err), ErrCrowded); crowded != errors.Is(err, io.ErrClosedPipe) {
				t.Errorf("%v is %v", err, c.Why(err))
			}
			return !errors.Is(err, os.ErrDeadlineExceeded)
		}
		other, known := enter(2), enter(1)
		known.Known()
		for range PerOrigin {
			enter(1)
		}
		began := time.Now()
		enter(1)
		if gone(other) || gone(known) || !gone(all[2]) || gone(all[3]) || gone(all[len(all)-1]) {
			t.Error("another one went than the oldest of the address")
		}
		for i := 0; len(d.unknown) < All; i++ {
			enter(byte(3 + i%100))
		}
		enter(200)
		if time.Since(began) != 0 || !gone(other) || gone(all[3]) {
			t.Error("another one went than the oldest")
		}
		for _, c := range all {
			c.Close()
		}
		if len(d.unknown) != 0 || len(d.of) != 0 {
			t.Errorf("%d count still", len(d.unknown))
		}
		d.Close()
		if _, err := enter(1).Read(make([]byte, 1)); !errors.Is(err, io.ErrClosedPipe) || len(d.unknown) != 0 {
			t.Error("one enters after the end")
		}
	})
}

// TestHostileTalk: until it authenticates a peer may send so much, and has so long.
func TestHostileTalk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &Door{Timeout: time.Minute}
		conn, peer := from(1)
		c := d.Enter(conn)
		go io.WriteString(peer, strings.Repeat("x", MaxBytes+1))
		if n, err := io.Copy(io.Discard, c); n != MaxBytes || !errors.Is(err, errTooLong) || !c.Heard() {
			t.Errorf("read %d bytes, %v", n, err)
		}
		c.Known()
		if n, err := c.Read(make([]byte, 2)); n != 1 || err != nil {
			t.Errorf("of one that is known, read %d bytes, %v", n, err)
		}
		go func() {
			time.Sleep(time.Hour)
			peer.Close()
		}()
		if _, err := c.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("one that is known has no time: %v", err)
		}
		conn, _ = from(1)
		began := time.Now()
		if _, err := d.Enter(conn).Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) != time.Minute {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

// TestHostileUser: the kernel tells whose a connection is, but not of one that is closed; other users are not heard.
func TestHostileUser(t *testing.T) {
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	must.Do(t, err)
	defer plain.Close()
	addr := plain.Addr().String()
	accept := func() net.Conn {
		t.Helper()
		conn, err := plain.Accept()
		must.Do(t, err)
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	closed := admittest.As(t, os.Getuid(), addr)
	conn := accept()
	if uid, err := User(conn); uid != os.Getuid() || err != nil {
		t.Errorf("own connection: user %d, %v", uid, err)
	}
	io.WriteString(closed, "too late")
	closed.Close()
	if uid, err := User(conn); uid != -1 || err == nil {
		t.Errorf("a closed connection: user %d, %v", uid, err)
	}
	if os.Getuid() != 0 {
		t.Skip("only root can connect as another user")
	}
	admittest.As(t, 12345, addr)
	if uid, err := User(accept()); uid != 12345 || err != nil {
		t.Errorf("another user's connection: user %d, %v", uid, err)
	}
	var refused []string
	l := Local(plain, func(err error) { refused = append(refused, err.Error()) })
	stranger := admittest.As(t, 12345, addr)
	mine := admittest.As(t, os.Getuid(), addr)
	got, err := l.Accept()
	must.Do(t, err)
	defer got.Close()
	if got.RemoteAddr().String() != mine.LocalAddr().String() || len(refused) != 1 || !strings.Contains(refused[0], "user 12345 connects from") {
		t.Errorf("%v comes in, refused %q", got.RemoteAddr(), refused)
	}
	if _, err := stranger.Read(make([]byte, 1)); err == nil {
		t.Error("another user is heard")
	}
}
