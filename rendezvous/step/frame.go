package step

import (
	"encoding/binary"
	"errors"
	"io"
	"sync"
)

// A frame is a kind, the length of its data in four bytes, and the data.
const (
	started   byte = 's' // the child runs
	input     byte = 'i' // for its standard input
	closing   byte = 'c' // its standard input ends
	output    byte = 'o' // of its standard output
	complaint byte = 'e' // of its standard error
	exited    byte = 'x' // its exit status, in four bytes, 128+n for signal n; the last frame
)

const (
	headSize = 5
	maxFrame = 32 << 10
)

var errFrame = errors.New("the other side sent a malformed frame")

// framer writes frames. It may be used by many goroutines at once.
type framer struct {
	mu  sync.Mutex
	to  io.Writer
	buf []byte
}

func (f *framer) send(kind byte, data []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.buf = append(f.buf[:0], kind, 0, 0, 0, 0)
	binary.LittleEndian.PutUint32(f.buf[1:], uint32(len(data)))
	f.buf = append(f.buf, data...)
	_, err := f.to.Write(f.buf)
	return err
}

// stream writes frames of one kind.
type stream struct {
	*framer
	kind byte
}

func (s stream) Write(b []byte) (n int, err error) {
	for n < len(b) {
		part := b[n:min(n+maxFrame, len(b))]
		if err := s.send(s.kind, part); err != nil {
			return n, err
		}
		n += len(part)
	}
	return n, nil
}

// readFrame reads a frame into buf, which has room for maxFrame bytes.
func readFrame(in io.Reader, buf []byte) (kind byte, data []byte, err error) {
	var head [headSize]byte
	if _, err := io.ReadFull(in, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.LittleEndian.Uint32(head[1:])
	if n > maxFrame {
		return 0, nil, errFrame
	}
	if _, err := io.ReadFull(in, buf[:n]); err != nil {
		return 0, nil, io.ErrUnexpectedEOF
	}
	return head[0], buf[:n], nil
}
