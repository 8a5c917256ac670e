//go:build !linux

package link

import "syscall"

// vectorReader is not available here: reads go through net.Conn.
type vectorReader struct{ raw syscall.RawConn }

func (v *vectorReader) init(syscall.RawConn) {}

func (v *vectorReader) read(dst, ahead []byte) (int, error) { panic("link: no vectorReader") }

// directWriter is not available here: every segment is written by the stream's writer.
func directWriter(syscall.RawConn) func(a, b []byte) (int, error) { return nil }

// pathProbe knows nothing here: only the peer's acknowledgements count as progress.
type pathProbe struct{}

func (*pathProbe) init(syscall.RawConn) {}

func (*pathProbe) state() pathState { return pathState{answers: true} }
