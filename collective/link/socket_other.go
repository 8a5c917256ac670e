//go:build !linux

package link

import (
	"net"
	"syscall"
	"time"
)

// vectorReader is not available here: reads go through net.Conn.
type vectorReader struct{ raw syscall.RawConn }

func (v *vectorReader) init(syscall.Conn, time.Duration) {}

func (v *vectorReader) read(dst, ahead []byte) (int, error) { panic("link: no vectorReader") }

// directWriter is not available here: every segment is written by the stream's writer.
func directWriter(net.Conn) func([]byte) (int, error) { return nil }

// pathState is not known here: only the peer's acknowledgements count as progress.
func (st *stream) pathState() way { return way{answers: true} }

// roundTrip is not known here.
func (st *stream) roundTrip() time.Duration { return 0 }
