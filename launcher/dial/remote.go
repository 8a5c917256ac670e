package dial

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"

	"gorun/launcher/failure"
	"gorun/launcher/hosts"
	"gorun/launcher/ssh"
	"gorun/launcher/talk"
	"gorun/rendezvous/liveness"
)

// Starter starts the binary on a host, with arguments, and connects the launcher with it: SSH and Steps.
type Starter interface {
	// start also returns the address at which the host was reached, as far as it is known. The program's connection
	// ends with ctx.
	start(ctx context.Context, host string, args []string) (started *login, address string, err error)
}

// Remote starts daemons on other hosts.
type Remote struct {
	By   Starter
	Args []string // that make the binary a worker
	// TimeScale is the same as in wire.JobOptions.
	TimeScale float64
	// Once is for commands in place of daemons: the conversation ends with its connection, and nothing is cleaned up.
	Once bool
}

// SSH starts the binary by logging in, and brings it along where it is missing.
type SSH struct {
	Client *ssh.Client
	Binary func() (ssh.Binary, error) // called when the first host needs it
}

// Dial implements Dialer.
func (s *Remote) Dial(ctx context.Context, host string) (*talk.Daemon, error) {
	if s.Once {
		d, ip, err := s.By.start(ctx, host, s.Args)
		if err != nil {
			return nil, err
		}
		d.first = true
		return &talk.Daemon{In: d.In, Out: d.Out, LocalIP: ip, Remote: true, Identity: d.who, Close: d.Close, Wait: d.end, Ended: d.ownEnd}, nil
	}
	session, token, err := newSession()
	if err != nil {
		return nil, err
	}
	worker, relay := append(slices.Clip(s.Args), "--session", session), []string{"worker", "--relay", session}
	var ip string
	var who talk.Identity
	l, err := openLine(ctx, token, liveness.Default().Scaled(s.TimeScale), func(ctx context.Context) (d *login, err error) {
		if d, ip, err = s.By.start(ctx, host, worker); err == nil {
			who = d.who
		}
		return d, err
	}, func(ctx context.Context) (*login, error) {
		d, _, err := s.By.start(ctx, host, relay)
		return d, err
	})
	if err != nil {
		return nil, err
	}
	out, err := l.begun(ctx)
	if err != nil {
		return nil, &hosts.Error{Host: host, Step: "start daemon", Err: err, Code: failure.ExitTransport}
	}
	return &talk.Daemon{In: l, Out: out, LocalIP: ip, Remote: true, Identity: who, Close: l.Close, Wait: l.Wait, Away: l.Away,
		Ended: func() bool { return l.last.ownEnd() },
		Sweep: func(ctx context.Context, job string) error { return s.sweepAfter(ctx, l.last, host, job) }}, nil
}

// start implements Starter.
func (s *SSH) start(ctx context.Context, host string, args []string) (*login, string, error) {
	var reading sync.WaitGroup
	reading.Go(func() { s.Binary() }) // while we wait for the host
	defer reading.Wait()
	conn, err := s.Connect(ctx, host)
	if err != nil {
		return nil, "", err
	}
	binary, err := s.Binary()
	if err != nil {
		conn.Close()
		return nil, "", &hosts.Error{Host: host, Step: "upload", Err: err}
	}
	session, err := conn.Bootstrap(ctx, binary, args)
	if err != nil {
		conn.Close()
		return nil, "", explainSSH(host, err)
	}
	d := newLogin(session.Stdin, session.Stdout, session.Stderr, session.Wait)
	d.Close = func() error { return conn.Finish(session) }
	d.HungUp = func() bool { return conn.HungUp(d.Stderr()) }
	d.who, d.blind = talk.Identity{HostKey: conn.HostKey()}, conn.Blind()
	ip := ""
	if a, ok := conn.RemoteAddr().(*net.TCPAddr); ok {
		ip = a.IP.String()
	}
	return d, ip, nil
}

// sweepAfter sweeps a host whose daemon and supervisor were both killed, so that neither cleaned up.
func (s *Remote) sweepAfter(ctx context.Context, last *login, host, job string) error {
	code, err := last.Status()
	if err != nil || last.first && (code < 128 || last.Stderr() != "") {
		return nil // how it ended is unknown, or it was not killed, or the supervisor has reported that
	}
	return s.sweep(ctx, host, job)
}

// sweep runs the binary, which is on the host, to end what is left of a job.
func (s *Remote) sweep(ctx context.Context, host, job string) error {
	d, _, err := s.By.start(ctx, host, append(slices.Clone(s.Args), "--sweep", job))
	if err != nil {
		return err
	}
	defer d.Close()
	io.Copy(io.Discard, d.Out)
	if code, err := d.Status(); err != nil || code != 0 {
		return cmp.Or(err, fmt.Errorf("clean up: exit code %d: %s", code, failure.LastLine(d.Stderr())))
	}
	return nil
}

// Connect logs in on a host. The error is a *hosts.Error.
func (s *SSH) Connect(ctx context.Context, host string) (*ssh.Conn, error) {
	conn, err := s.Client.Connect(ctx, host)
	if err != nil {
		return nil, explainSSH(host, err)
	}
	return conn, nil
}

// explainSSH returns an error of the ssh client as the launcher ends with it.
func explainSSH(host string, err error) error {
	e, ok := errors.AsType[*ssh.Error](err)
	if !ok {
		return &hosts.Error{Host: host, Step: "connect", Err: err, Code: failure.ExitTransport}
	}
	at := *e // others may wait for the same bastion
	at.Host, at.Code = host, failure.ExitTransport
	return &at
}

// ReadBinary returns a function that identifies an executable by its content, reading it once. If another file has
// taken its place since, Open fails.
func ReadBinary(path, platform string) func() (ssh.Binary, error) {
	return sync.OnceValues(func() (ssh.Binary, error) {
		hash := sha256.New()
		f, err := os.Open(path)
		if err != nil {
			return ssh.Binary{}, fmt.Errorf("read binary: %w", err)
		}
		defer f.Close()
		was, err := f.Stat()
		size, copyErr := io.Copy(hash, f)
		if err := cmp.Or(err, copyErr); err != nil {
			return ssh.Binary{}, fmt.Errorf("read binary: %w", err)
		}
		return ssh.Binary{SHA256: hex.EncodeToString(hash.Sum(nil)), Size: size, Platform: platform,
			Open: func() (io.ReadCloser, error) { return openSame(path, was) }}, nil
	})
}

// HoldBinary is ReadBinary for an executable in memory.
func HoldBinary(program []byte, platform string) func() (ssh.Binary, error) {
	return sync.OnceValues(func() (ssh.Binary, error) {
		hash := sha256.Sum256(program)
		return ssh.Binary{SHA256: hex.EncodeToString(hash[:]), Size: int64(len(program)), Platform: platform,
			Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(program)), nil }}, nil
	})
}

// openSame opens a file if it is still the one that it was.
func openSame(path string, was os.FileInfo) (io.ReadCloser, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	is, err := f.Stat()
	if err == nil && !(os.SameFile(is, was) && is.Size() == was.Size() && is.ModTime().Equal(was.ModTime())) {
		err = fmt.Errorf("%s was replaced after gorun had begun: start gorun again", path)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
