package ssh

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// commandConn is the standard input and output of a ProxyCommand as a net.Conn.
type commandConn struct {
	command string
	in, out *os.File // unlike StdinPipe and StdoutPipe, not closed when the command ends
	said    Said

	cmd     *exec.Cmd
	hungUp  atomic.Bool   // the command has closed a stream
	ended   chan struct{} // closed once err holds its status
	err     error
	closing sync.Once
	killed  bool // by Close
}

const (
	// proxyHeld is how long a ProxyCommand that has ended may leave its standard error open to other processes.
	proxyHeld = 500 * time.Millisecond
	// proxyEnds is how long a ProxyCommand that has closed a stream may take to exit, so that its status is known.
	proxyEnds = time.Second
	proxyTail = 4 << 10 // bytes of standard error that are kept
)

// dialCommand starts a ProxyCommand, which the shell interprets as in OpenSSH. A goroutine waits for its end; Close
// waits for that goroutine.
func dialCommand(command string) (net.Conn, error) {
	c := &commandConn{command: command, cmd: exec.Command("/bin/sh", "-c", "exec "+command), ended: make(chan struct{})}
	c.said.Limit, c.cmd.Stderr, c.cmd.WaitDelay = proxyTail, &c.said, proxyHeld
	stdin, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer stdin.Close()
	out, stdout, err := os.Pipe()
	if err != nil {
		in.Close()
		return nil, err
	}
	defer stdout.Close()
	c.in, c.out, c.cmd.Stdin, c.cmd.Stdout = in, out, stdin, stdout
	wait, err := StartBound(c.cmd)
	if err != nil {
		in.Close()
		out.Close()
		return nil, err
	}
	go func() {
		c.err = wait()
		close(c.ended)
	}()
	return c, nil
}

// Read implements net.Conn.
func (c *commandConn) Read(b []byte) (int, error) {
	n, err := c.out.Read(b)
	if err != nil {
		c.hungUp.Store(true)
	}
	return n, err
}

// Write implements net.Conn.
func (c *commandConn) Write(b []byte) (int, error) {
	n, err := c.in.Write(b)
	if err != nil {
		c.hungUp.Store(true)
	}
	return n, err
}

// Close kills the command and reaps it.
func (c *commandConn) Close() error {
	c.closing.Do(func() {
		c.in.Close()
		patience := time.Duration(0)
		if c.hungUp.Load() {
			patience = proxyEnds
		}
		select {
		case <-c.ended:
		case <-time.After(patience):
			c.killed = true
			c.cmd.Process.Kill()
			<-c.ended
		}
		c.out.Close()
	})
	return nil
}

// failure explains a connection that was closed before the server showed a key, if the command failed. It returns nil
// if the command succeeded or reports that the server hung up: then the server has to be explained.
func (c *commandConn) failure(addr string) *Error {
	c.Close()
	var exit *exec.ExitError
	lines := strings.Split(strings.TrimSpace(c.said.String()), "\n")
	said := oneLine(lines[len(lines)-1])
	if c.killed || !errors.As(c.err, &exit) || wasDropped(said) || strings.Contains(strings.ToLower(said), "reset by peer") {
		return nil
	}
	e := &Error{Step: StepConnect, Hint: "does the ProxyCommand of ssh_config work by itself? " + c.command}
	if e.Err = fmt.Errorf("%s: the ProxyCommand ended with %w", addr, exit); said != "" {
		e.Err = fmt.Errorf("%w: %s", e.Err, said)
	}
	return e
}

// Said keeps the last bytes that a program has written, as many as Limit, and as many of the first: the Go runtime begins
// with the reason when it ends.
type Said struct {
	Limit int

	mu   sync.Mutex
	head []byte
	buf  bytes.Buffer
	cut  bool // bytes between head and buf are gone, or in both
}

// Write implements io.Writer.
func (t *Said) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.head = append(t.head, b[:min(len(b), t.Limit-len(t.head))]...)
	t.buf.Write(b)
	if n := t.buf.Len() - t.Limit; n > 0 {
		t.buf.Next(n)
		t.cut = true
	}
	return len(b), nil
}

func (t *Said) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.cut {
		return string(t.head) + "\n" + t.buf.String()
	}
	return t.buf.String()
}

// commandAddr stands for the unknown address of the far end, in a form that known_hosts checking can parse.
var commandAddr net.Addr = &net.TCPAddr{IP: net.IPv4zero}

func (c *commandConn) LocalAddr() net.Addr  { return commandAddr }
func (c *commandConn) RemoteAddr() net.Addr { return commandAddr }

// There are no deadlines here; attempts are limited by closing the connection.
func (c *commandConn) SetDeadline(time.Time) error      { return nil }
func (c *commandConn) SetReadDeadline(time.Time) error  { return nil }
func (c *commandConn) SetWriteDeadline(time.Time) error { return nil }
