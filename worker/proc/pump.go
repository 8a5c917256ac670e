package proc

import (
	"errors"
	"io"
	"os"
	"syscall"
	"time"
)

// pumpSize is how much of a rank's output is copied at once: half of what a pipe holds by default, so that the rank can
// continue to write meanwhile.
const pumpSize = 32 << 10

// maxPipe bounds the content of a pipe (the limit for users in /proc/sys/fs/pipe-max-size).
const maxPipe = 1 << 20

// pump copies a rank's output to w until the pipe ends or is cut, and closes it. An error of w loses the output, not
// the rank: a program must not fail because its output is not read.
func pump(r *os.File, w io.Writer) {
	defer r.Close()
	buf := make([]byte, pumpSize)
	for {
		n, err := r.Read(buf)
		if n > 0 {
			w.Write(buf[:n])
		}
		if err == nil {
			continue
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			drain(r, w, buf)
		}
		return
	}
}

// cut makes pump take what is in the pipe and not wait for more.
func cut(r *os.File) { r.SetReadDeadline(time.Unix(1, 0)) }

// drain reads without waiting. The bound is for writers that never stop.
func drain(r *os.File, w io.Writer, buf []byte) {
	r.SetReadDeadline(time.Time{})
	raw, err := r.SyscallConn()
	if err != nil {
		return
	}
	for total := 0; total < maxPipe; {
		var n int
		var readErr error
		err := raw.Read(func(fd uintptr) bool {
			n, readErr = syscall.Read(int(fd), buf) // the parent's end never blocks
			return true
		})
		if err != nil || readErr != nil || n <= 0 {
			return
		}
		w.Write(buf[:n])
		total += n
	}
}
