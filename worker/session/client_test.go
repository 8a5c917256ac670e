package session_test

import (
	"encoding/binary"
	"math"
	"testing"

	"golang.org/x/sys/unix"

	"gorun/collective"
	"gorun/collective/kernel"
	"gorun/contrib/must"
)

var le = binary.LittleEndian

// client is a rank: a socket, with the messages written out by hand so that it can also send nonsense.
type client struct {
	t      testing.TB
	fd     int
	region uint32 // the last that it has asked for
	memory []byte // of the region
}

func dial(t testing.TB, name string) *client {
	t.Helper()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	must.Do(t, err)
	c := &client{t: t, fd: fd}
	t.Cleanup(c.close)
	must.Do(t, unix.Connect(fd, &unix.SockaddrUnix{Name: "@" + name}))
	// No test waits for ever: a receive that takes this long fails.
	must.Do(t, unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 20}))
	return c
}

func (c *client) close() {
	if c.fd >= 0 {
		unix.Close(c.fd)
		c.fd = -1
	}
}

func (c *client) send(b []byte) {
	c.t.Helper()
	if err := unix.Send(c.fd, b, unix.MSG_NOSIGNAL); err != nil {
		c.t.Fatalf("send: %v", err)
	}
}

// receive returns the next message and its descriptor, -1 for none; nil at the end of the connection.
func (c *client) receive() ([]byte, int) {
	c.t.Helper()
	b, oob := make([]byte, 1<<18), make([]byte, unix.CmsgSpace(4))
	n, oobn, _, _, err := unix.Recvmsg(c.fd, b, oob, unix.MSG_CMSG_CLOEXEC)
	for err == unix.EINTR || err == unix.ECONNRESET { // signals of the runtime; once, a daemon that ended before it had read all
		n, oobn, _, _, err = unix.Recvmsg(c.fd, b, oob, unix.MSG_CMSG_CLOEXEC)
	}
	if err == nil && n == 0 {
		return nil, -1
	}
	if err != nil {
		c.t.Fatalf("receive: %v", err)
	}
	fd := -1
	if oobn > 0 {
		messages, err := unix.ParseSocketControlMessage(oob[:oobn])
		must.Do(c.t, err)
		fds, err := unix.ParseUnixRights(&messages[0])
		if err != nil || len(fds) != 1 {
			c.t.Fatalf("descriptors %v: %v", fds, err)
		}
		fd = fds[0]
	}
	return b[:n], fd
}

// expect receives a message of that type.
func (c *client) expect(kind uint32) ([]byte, int) {
	c.t.Helper()
	b, fd := c.receive()
	if b == nil {
		c.t.Fatalf("connection closed instead of message %d", kind)
	}
	if got := le.Uint32(b); got != kind {
		c.t.Fatalf("message of type %d, want %d: %q", got, kind, b)
	}
	return b, fd
}

// ended waits for the end of the connection.
func (c *client) ended() {
	c.t.Helper()
	for {
		if b, _ := c.receive(); b == nil {
			return
		}
	}
}

func words(v ...uint32) []byte {
	var b []byte
	for _, x := range v {
		b = le.AppendUint32(b, x)
	}
	return b
}

func helloOf(rank int, token [32]byte) []byte {
	b := append([]byte("GORUNRK1"), words(1, uint32(rank), 1234, 0)...)
	return append(append(b, token[:]...), make([]byte, 8)...)
}

// greet sends hello.
func greet(t testing.TB, name string, rank int) *client {
	t.Helper()
	c := dial(t, name)
	c.send(helloOf(rank, token(rank)))
	return c
}

// join sends hello and waits for the welcome.
func join(t testing.TB, name string, rank int) *client {
	t.Helper()
	c := greet(t, name, rank)
	c.expect(65)
	return c
}

// joinAll has ranks join, each with a MiB of memory.
func joinAll(t testing.TB, h *host, ranks []int) (all []*client) {
	t.Helper()
	for _, rank := range ranks {
		c := join(t, h.name, rank)
		c.alloc(1 << 20)
		all = append(all, c)
	}
	return all
}

func (c *client) goodbye() {
	c.t.Helper()
	c.send(words(6, 0))
	c.expect(69)
}

func token(rank int) [32]byte { return [32]byte{0: byte(rank), 31: 1} }

// alloc returns a region's number and its memory.
func (c *client) alloc(n int) (uint32, []byte) {
	c.t.Helper()
	c.send(le.AppendUint64(words(2, 99), uint64(n)))
	b, fd := c.expect(66)
	if le.Uint32(b[4:]) != 99 {
		c.t.Fatalf("answer to request %d, want 99", le.Uint32(b[4:]))
	}
	c.region, c.memory = le.Uint32(b[8:]), c.mmap(fd, int(le.Uint64(b[16:])), unix.PROT_READ|unix.PROT_WRITE)
	return c.region, c.memory
}

func (c *client) mmap(fd, n, prot int) []byte {
	c.t.Helper()
	defer unix.Close(fd)
	m, err := unix.Mmap(fd, 0, n, prot, unix.MAP_SHARED)
	if err != nil {
		c.t.Fatalf("map region: %v", err)
	}
	c.t.Cleanup(func() { unix.Munmap(m) })
	return m
}

const none = math.MaxUint32

// operation is a SUBMIT with every field open.
type operation struct {
	handle                                 uint32
	kind                                   collective.Kind
	dtype                                  kernel.Type
	op                                     kernel.Op
	ndim                                   int // of the header, if not len(dims)
	root                                   int32
	group                                  uint32
	in, out                                uint32
	inOffset, inBytes, outOffset, outBytes uint64
	dims                                   []int64
	splits                                 []int32
	name                                   string
}

// allreduce is n float32 in place, at the start of region.
func allreduce(handle, region uint32, n int, name string) operation {
	return operation{handle: handle, kind: collective.Allreduce, dtype: kernel.Float32, op: kernel.Sum, in: region, out: region,
		inBytes: uint64(4 * n), outBytes: uint64(4 * n), dims: []int64{int64(n)}, name: name}
}

func (o operation) encode() []byte {
	ndim := len(o.dims)
	if o.ndim != 0 {
		ndim = o.ndim
	}
	b := words(3, o.handle)
	b = append(b, byte(o.kind), byte(o.dtype), byte(o.op), byte(ndim))
	b = append(b, words(uint32(o.root), o.group, o.in, o.out, uint32(len(o.name)), uint32(len(o.splits)))...)
	for _, x := range []uint64{math.Float64bits(1), math.Float64bits(1), o.inOffset, o.inBytes, o.outOffset, o.outBytes} {
		b = le.AppendUint64(b, x)
	}
	for _, d := range o.dims {
		b = le.AppendUint64(b, uint64(d))
	}
	for _, d := range o.splits {
		b = le.AppendUint32(b, uint32(d))
	}
	return append(b, o.name...)
}
