package ssh

import (
	"io"
	"net"
	"os/exec"
	"sync"
	"time"
)

// commandConn is the standard input and output of a ProxyCommand as a connection.
type commandConn struct {
	in  io.WriteCloser
	out io.ReadCloser

	cmd   *exec.Cmd
	wait  func() error
	close sync.Once
}

// dialCommand starts a ProxyCommand, which the shell interprets as with OpenSSH. What it prints on standard error is lost;
// a failing one shows as a connection that closes.
func dialCommand(command string) (net.Conn, error) {
	cmd := exec.Command("/bin/sh", "-c", "exec "+command)
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	wait, err := startBound(cmd)
	if err != nil {
		return nil, err
	}
	return &commandConn{in: in, out: out, cmd: cmd, wait: wait}, nil
}

func (c *commandConn) Read(b []byte) (int, error)  { return c.out.Read(b) }
func (c *commandConn) Write(b []byte) (int, error) { return c.in.Write(b) }

// Close kills the command and reaps it.
func (c *commandConn) Close() error {
	c.close.Do(func() {
		c.in.Close()
		c.cmd.Process.Kill()
		c.wait()
	})
	return nil
}

// commandAddr stands for the far end, of which nothing is known. It has a form that known_hosts checking can parse.
var commandAddr net.Addr = &net.TCPAddr{IP: net.IPv4zero}

func (c *commandConn) LocalAddr() net.Addr  { return commandAddr }
func (c *commandConn) RemoteAddr() net.Addr { return commandAddr }

// Deadlines do not exist here; attempts are limited by closing the connection.
func (c *commandConn) SetDeadline(time.Time) error      { return nil }
func (c *commandConn) SetReadDeadline(time.Time) error  { return nil }
func (c *commandConn) SetWriteDeadline(time.Time) error { return nil }
