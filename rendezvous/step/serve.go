package step

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"gorun/rendezvous/liveness"
)

// timing says how long a host waits for its launcher, as it does after a login by ssh.
var timing = liveness.Default()

// connectTimeout is how long one address of the launcher may take to answer.
const connectTimeout = 3 * time.Second

// ErrUnreachable means that a step process never reached its launcher.
var ErrUnreachable = errors.New("the launcher cannot be reached from this host")

// ErrRefused means that the launcher does not let a host in.
var ErrRefused = errors.New("the launcher refuses this host")

// Serve is the host's end: it connects to the launcher and runs what that requests, until the launcher ends it or is
// gone. command prepares a child, except its standard streams.
func Serve(ctx context.Context, o Order, command func(args []string) *exec.Cmd) error {
	config, err := channel(o.Key)
	if err != nil {
		return err
	}
	s := &server{order: o, tls: config, command: command}
	defer s.running.Wait()
	for {
		conn, err := s.connect(ctx)
		if conn == nil {
			return err // nil if the launcher is gone
		}
		var next request
		in := bufio.NewReaderSize(conn, maxLine)
		stop := context.AfterFunc(ctx, func() { conn.Close() })
		err = readLine(in, &next)
		stop()
		switch {
		case ctx.Err() != nil:
			conn.Close()
			return context.Cause(ctx)
		case err == nil && next.End:
			conn.Close()
			return nil
		case err == nil && next.Refused != "":
			conn.Close()
			return fmt.Errorf("%w: %s", ErrRefused, next.Refused)
		case err == nil && len(next.Run) > 0:
			s.children.Add(1)
			s.running.Go(func() {
				defer s.children.Add(-1)
				s.run(conn, in, next.Run)
			})
		default:
			conn.Close()
		}
	}
}

type server struct {
	order    Order
	tls      *tls.Config
	command  func(args []string) *exec.Cmd
	children atomic.Int32
	running  sync.WaitGroup
	at       string // the address at which the launcher was reached last
}

// connect connects to the launcher, again and again. It gives up if no child runs and the launcher cannot be reached
// for FirstConnection, or for BrokenGrace if its machine refuses connections and it was reached before. If the launcher
// was reached before, connect then returns nil, without an error.
func (s *server) connect(ctx context.Context) (net.Conn, error) {
	since := time.Now()
	for pause := timing.RetryMin; ; pause = min(pause*3/2, time.Second) {
		conn, err := s.try(ctx)
		if err == nil {
			return conn, nil
		}
		patience := timing.FirstConnection
		if s.at != "" && errors.Is(err, syscall.ECONNREFUSED) {
			patience = timing.BrokenGrace
		}
		if s.children.Load() > 0 {
			since = time.Now()
		}
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case time.Since(since) < patience:
		case s.at != "":
			return nil, nil
		default:
			return nil, fmt.Errorf("%w: %w", ErrUnreachable, err)
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}

// attempt is the result of connecting to one address.
type attempt struct {
	addr string
	conn net.Conn
	err  error
}

// try connects to all addresses of the launcher at the same time, once, and returns the first connection. If all fail,
// it returns the error of the address that was reached last, or else the first error.
func (s *server) try(ctx context.Context) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	attempts := make(chan attempt, len(s.order.Addrs))
	for _, addr := range s.order.Addrs {
		s.running.Go(func() {
			conn, err := s.shake(ctx, addr)
			attempts <- attempt{addr, conn, err}
		})
	}
	var failed error
	for left := len(s.order.Addrs); left > 0; left-- {
		a := <-attempts
		if a.err == nil {
			a.err = s.greet(a.conn)
		}
		if a.err == nil {
			s.at = a.addr
			s.running.Go(func() {
				for range left - 1 {
					if other := <-attempts; other.err == nil {
						other.conn.Close()
					}
				}
			})
			return a.conn, nil
		}
		if failed == nil || a.addr == s.at {
			failed = fmt.Errorf("connect to %s: %w", a.addr, a.err)
		}
	}
	return nil, failed
}

// greet names this host, and closes a connection on which that fails.
func (s *server) greet(conn net.Conn) error {
	err := writeLine(conn, greeting{s.order.Host})
	if err != nil {
		conn.Close()
	}
	return err
}

func (s *server) shake(ctx context.Context, addr string) (net.Conn, error) {
	raw, err := (&net.Dialer{Timeout: connectTimeout, KeepAliveConfig: keepAlive}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	conn := tls.Client(raw, s.tls)
	if err := conn.HandshakeContext(ctx); err != nil {
		raw.Close()
		return nil, err
	}
	return conn, nil
}

// held is how long a child that has ended may leave its output to others.
const held = 2 * time.Second

// run runs a child whose standard streams a connection carries.
func (s *server) run(conn net.Conn, in io.Reader, args []string) {
	defer conn.Close()
	to := &framer{to: conn}
	cmd := s.command(args)
	cmd.Stdout, cmd.Stderr = stream{to, output}, stream{to, complaint}
	cmd.WaitDelay = held
	to.send(started, nil)
	stdin, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil { // the launcher shows it as it shows what a child wrote last
		stream{to, complaint}.Write([]byte(err.Error() + "\n"))
		to.send(exited, binary.LittleEndian.AppendUint32(nil, 127))
		return
	}
	var feeding sync.WaitGroup
	feeding.Go(func() {
		defer stdin.Close()
		buf := make([]byte, maxFrame)
		for open := true; ; {
			kind, data, err := readFrame(in, buf)
			switch {
			case err != nil:
				return
			case kind == closing:
				stdin.Close()
				open = false
			case kind == input && open:
				_, err := stdin.Write(data)
				open = err == nil
			}
		}
	})
	cmd.Wait()
	to.send(exited, binary.LittleEndian.AppendUint32(nil, uint32(code(cmd))))
	conn.Close()
	feeding.Wait()
}

// code is the exit status of a child, 128+n for signal n.
func code(cmd *exec.Cmd) int {
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return cmd.ProcessState.ExitCode()
}
