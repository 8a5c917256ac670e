package ssh

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	gossh "golang.org/x/crypto/ssh"

	"gorun/launcher/hosts"
)

// Step is the stage of a launch at which a host failed.
type Step = string

// The steps in the order they happen.
const (
	StepConfig       Step = "ssh config"
	StepResolve      Step = "resolve"
	StepConnect      Step = "connect"
	StepHandshake    Step = "handshake"
	StepHostKey      Step = "host key"
	StepAuthenticate Step = "authenticate"
	StepOpenChannel  Step = "open channel"
	StepUpload       Step = "upload"
	StepStart        Step = "start"
)

// Error is the error of every function here that reaches a host. Its Step is one of those above.
type Error = hosts.Error

// dialError turns an error of the dialer into a step and a hint. addr is host:port.
func dialError(addr string, err error) *Error {
	host, port, _ := net.SplitHostPort(addr)
	e := &Error{Step: StepConnect}
	var dns *net.DNSError
	var rejected *gossh.OpenChannelError
	switch {
	case errors.As(err, &dns):
		e.Step = StepResolve
		e.Err = fmt.Errorf("unknown host %s", dns.Name)
		e.Hint = "check the spelling, DNS, /etc/hosts or HostName in ssh_config"
		if dns.IsTimeout || dns.IsTemporary {
			e.Err = fmt.Errorf("look up %s: %s", dns.Name, dns.Err)
			e.Hint = "the name server does not answer; try again or use an address"
		}
	case errors.As(err, &rejected):
		// The bastion dialled for us; its message is all there is.
		e.Err = fmt.Errorf("%s: the bastion says: %s", addr, oneLine(rejected.Message))
		if rejected.Reason == gossh.Prohibited {
			e.Hint = "the bastion's sshd forbids forwarding: AllowTcpForwarding, PermitOpen"
		}
	case errors.Is(err, syscall.ECONNREFUSED):
		e.Err = fmt.Errorf("%s: connection refused", addr)
		e.Hint = fmt.Sprintf("is sshd running on %s, and on port %s? (-p sets the port)", host, port)
	case isTimeout(err):
		e.Err = err
		if _, ours := err.(*silence); !ours {
			e.Err = &silence{addr: addr}
		}
		e.Hint = "is the host up, the address right and the port open in the firewall?"
	default:
		var sys *os.SyscallError
		if errors.As(err, &sys) {
			err = sys.Err // "no route to host" rather than "dial tcp …: connect: no route to host"
		}
		e.Err = fmt.Errorf("%s: %w", addr, err)
		if errors.Is(err, syscall.ENETUNREACH) || errors.Is(err, syscall.EHOSTUNREACH) {
			e.Hint = fmt.Sprintf("is the address right, the host up, and a VPN or bastion (ProxyJump) needed? See: ip route get %s", host)
		}
	}
	return e
}

// ErrPaused matches, by errors.Is, the error of a host that accepted the connection and then sent nothing for as long
// as a login may take when the user has set no limit (ConnectTimeout). The machine may be paused for a while.
var ErrPaused = errors.New("the host is paused")

// ErrBroken matches, by errors.Is, the error of a connection that broke between the login and the end of a command.
// Another attempt may succeed.
var ErrBroken = errors.New("the connection broke")

// broken is the error of a connection that broke.
type broken struct{ error }

func (b broken) Unwrap() error { return b.error }

func (b broken) Is(target error) bool { return target == ErrBroken }

// cut is the error of a command that was cut off because it closed its output and did not exit.
type cut struct{ error }

func (c cut) Unwrap() error { return c.error }

// silence is an expired deadline, worded for users.
type silence struct {
	addr   string
	after  time.Duration // 0: the system's
	paused bool          // see ErrPaused
}

func (e *silence) Error() string {
	if e.after == 0 {
		return e.addr + ": no answer"
	}
	return fmt.Sprintf("%s: no answer within %v", e.addr, e.after)
}

func (e *silence) Is(target error) bool {
	return target == context.DeadlineExceeded || target == ErrPaused && e.paused
}

func isTimeout(err error) bool {
	var t net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &t) && t.Timeout()
}

// isDropped reports whether the peer hung up on us, which is what an sshd over its MaxStartups does.
func isDropped(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) ||
		errors.Is(err, syscall.EPIPE)
}

// oneLine makes foreign text fit to be printed in a message: no line breaks or control characters, of limited length.
func oneLine(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return -1
		}
		return r
	}, s)
	const limit = 300
	if len(s) > limit {
		s = strings.ToValidUTF8(s[:limit], "") + "…"
	}
	return s
}
