package tcp_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"gorun/collective/tcp"
	"gorun/contrib/must"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func listen(t *testing.T, o tcp.Options) net.Listener {
	t.Helper()
	l, err := o.Listen(t.Context(), "127.0.0.1:0")
	must.Do(t, err)
	t.Cleanup(func() { l.Close() })
	return l
}

// closed returns an address that refuses.
func closed(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.Do(t, err)
	defer l.Close()
	return l.Addr().String()
}

// deaf returns an address that never answers: its queue of connections is full.
func deaf(t *testing.T) string {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must.Do(t, err)
	t.Cleanup(func() { unix.Close(fd) })
	must.Do(t, errors.Join(unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), unix.Listen(fd, 0)))
	name, err := unix.Getsockname(fd)
	must.Do(t, err)
	addr := (&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: name.(*unix.SockaddrInet4).Port}).String()
	for range 8 {
		c, err := net.DialTimeout("tcp", addr, 50*time.Millisecond)
		if err != nil {
			return addr
		}
		t.Cleanup(func() { c.Close() })
	}
	t.Fatal("the queue does not fill")
	return ""
}

func TestDialTriesAllAddresses(t *testing.T) {
	o := tcp.Options{Stagger: 20 * time.Millisecond}
	l := listen(t, o)
	good := l.Addr().String()
	for name, addrs := range map[string][]string{
		"one":                {good},
		"refused first":      {closed(t), good},
		"two refused first":  {closed(t), closed(t), good},
		"deaf first":         {deaf(t), good},
		"deaf and refused":   {deaf(t), closed(t), good},
		"good first":         {good, deaf(t)},
		"nonsense in front":  {"256.256.256.256:1", "x", good},
		"the same two times": {good, good},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			c, err := o.Dial(ctx, addrs)
			must.Do(t, err)
			defer c.Close()
			if c.RemoteAddr().String() != good {
				t.Errorf("connected to %v", c.RemoteAddr())
			}
		})
	}
}

func TestDialFails(t *testing.T) {
	refused := closed(t)
	for name, c := range map[string]struct {
		addrs []string
		want  string
	}{
		"none":        {nil, "no address"},
		"refused":     {[]string{refused}, refused},
		"all refused": {[]string{closed(t), refused}, refused},
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := tcp.Options{}.Dial(t.Context(), c.addrs)
			if err == nil {
				conn.Close()
				t.Fatal("connected")
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v does not mention %s", err, c.want)
			}
		})
	}
}

func TestDialEndsWithContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	d := deaf(t)
	if c, err := (tcp.Options{Stagger: time.Millisecond}).Dial(ctx, []string{d, d}); err == nil {
		c.Close()
		t.Error("connected")
	}
}

// While an address does not answer it is tried again and again, so that it is reached soon after it can be.
func TestDialTriesAgain(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	c, err := (tcp.Options{Stagger: 20 * time.Millisecond}).Dial(ctx, []string{deaf(t)})
	if err == nil {
		c.Close()
		t.Fatal("connected")
	}
	var all interface{ Unwrap() []error }
	if !errors.As(err, &all) || len(all.Unwrap()) < 3 {
		t.Errorf("after half a second: %v, want at least three attempts", err)
	}
}

func option(t *testing.T, c net.Conn, level, name int) int {
	t.Helper()
	var v int
	raw, err := c.(syscall.Conn).SyscallConn()
	must.Do(t, err)
	raw.Control(func(fd uintptr) { v, err = unix.GetsockoptInt(int(fd), level, name) })
	must.Do(t, err)
	return v
}

func congestion(t *testing.T, c net.Conn) string {
	t.Helper()
	var v string
	raw, err := c.(syscall.Conn).SyscallConn()
	must.Do(t, err)
	raw.Control(func(fd uintptr) { v, err = unix.GetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION) })
	must.Do(t, err)
	return strings.TrimRight(v, "\x00")
}

// Both ends of a connection have the options: what is accepted inherits them.
func TestOptions(t *testing.T) {
	l := listen(t, tcp.Options{})
	a, err := tcp.Options{}.Dial(t.Context(), []string{l.Addr().String()})
	must.Do(t, err)
	defer a.Close()
	b, err := l.Accept()
	must.Do(t, err)
	defer b.Close()
	for side, c := range map[string]net.Conn{"dialed": a, "accepted": b} {
		for name, x := range map[string]struct{ level, option, want int }{
			"TCP_NODELAY":       {unix.IPPROTO_TCP, unix.TCP_NODELAY, 1},
			"TCP_USER_TIMEOUT":  {unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, 15000},
			"TCP_NOTSENT_LOWAT": {unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, 512 << 10},
			"TCP_KEEPIDLE":      {unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 5},
			"TCP_KEEPINTVL":     {unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, 3},
			"TCP_KEEPCNT":       {unix.IPPROTO_TCP, unix.TCP_KEEPCNT, 3},
			"SO_KEEPALIVE":      {unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
			"SO_PROTOCOL":       {unix.SOL_SOCKET, unix.SO_PROTOCOL, unix.IPPROTO_TCP},
		} {
			if got := option(t, c, x.level, x.option); got != x.want {
				t.Errorf("%s: %s is %d, want %d", side, name, got, x.want)
			}
		}
		if cc := congestion(t, c); cc != "cubic" {
			t.Errorf("%s: congestion control is %s", side, cc)
		}
	}
}
