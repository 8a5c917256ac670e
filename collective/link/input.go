package link

import (
	"io"
	"net"
	"syscall"
)

// input reads a connection: headers and small payloads through a buffer, large payloads straight into
// their destination. Where the system allows, the rest of a large payload and the next header are read
// with one call, so that a large segment costs one.
type input struct {
	conn  net.Conn
	touch func() // something was read
	buf   []byte
	r, w  int // buf[r:w] was read and not consumed
	fill  int // how much to read into an empty buffer

	vector vectorReader
}

// headFill is how much to read for a header while segments are large: the payload after it is better read straight into
// its destination.
const headFill = 4 << 10

func (in *input) init(conn net.Conn, socket syscall.RawConn, touch func()) {
	*in = input{conn: conn, touch: touch, buf: make([]byte, readBuffer), fill: readBuffer}
	in.vector.init(socket)
}

// peek returns the next n bytes, which fit into the buffer, without consuming them.
func (in *input) peek(n int) ([]byte, error) {
	for in.w-in.r < n {
		if in.r > 0 {
			in.w = copy(in.buf, in.buf[in.r:in.w])
			in.r = 0
		}
		m, err := in.read(in.buf[in.w:max(in.fill, n)], nil)
		if err != nil {
			return nil, err
		}
		in.w += m
	}
	return in.buf[in.r : in.r+n], nil
}

// use consumes n bytes that were peeked at.
func (in *input) use(n int) { in.r += n }

// full reads len(dst) bytes, and the next header if it has arrived.
func (in *input) full(dst []byte) error {
	n := copy(dst, in.buf[in.r:in.w])
	in.r += n
	dst = dst[n:]
	if len(dst) == 0 {
		return nil
	}
	in.r, in.w = 0, 0
	for len(dst) > 0 {
		n, err := in.read(dst, in.buf[:headSize+tagSize])
		if err != nil {
			return err
		}
		in.w = max(n-len(dst), 0)
		dst = dst[min(n, len(dst)):]
	}
	return nil
}

// skip discards n bytes.
func (in *input) skip(n int) error {
	for n > 0 {
		if in.r == in.w {
			in.r, in.w = 0, 0
			if _, err := in.peek(1); err != nil {
				return err
			}
		}
		m := min(n, in.w-in.r)
		in.r += m
		n -= m
	}
	return nil
}

// read reads into dst and, once that is full, into ahead.
func (in *input) read(dst, ahead []byte) (int, error) {
	var n int
	var err error
	if in.vector.raw != nil {
		n, err = in.vector.read(dst, ahead)
	} else {
		n, err = in.conn.Read(dst)
	}
	if n > 0 {
		in.touch()
		return n, nil
	}
	if err == nil {
		err = io.EOF
	}
	return 0, err
}
