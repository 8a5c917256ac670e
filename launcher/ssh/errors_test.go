package ssh

import (
	"crypto/ed25519"
	"errors"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"gorun/contrib/must"

	gossh "golang.org/x/crypto/ssh"
)

// TestDialError: the error of a dialer becomes a step, a line and what to do.
func TestDialError(t *testing.T) {
	call := func(errno syscall.Errno) error {
		return &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", errno)}
	}
	const route = "is the address right, the host up, and a VPN or bastion (ProxyJump) needed? See: ip route get 10.1.2.3"
	for _, tc := range []struct {
		err  error
		step Step
		text string
		hint string
	}{
		{&net.DNSError{Name: "h", Err: "no such host", IsNotFound: true}, StepResolve, "unknown host h", "check the spelling, DNS, /etc/hosts or HostName in ssh_config"},
		{&net.DNSError{Name: "h", Err: "i/o timeout", IsTimeout: true}, StepResolve, "look up h: i/o timeout", "the name server does not answer; try again or use an address"},
		{&gossh.OpenChannelError{Reason: gossh.Prohibited, Message: "open failed"}, StepConnect, "10.1.2.3:22: the bastion says: open failed",
			"the bastion's sshd forbids forwarding: AllowTcpForwarding, PermitOpen"},
		{&gossh.OpenChannelError{Reason: gossh.ConnectionFailed, Message: "no route"}, StepConnect, "10.1.2.3:22: the bastion says: no route", ""},
		{call(syscall.ECONNREFUSED), StepConnect, "10.1.2.3:22: connection refused", "is sshd running on 10.1.2.3, and on port 22? (-p sets the port)"},
		{call(syscall.EHOSTUNREACH), StepConnect, "10.1.2.3:22: no route to host", route},
		{call(syscall.ENETUNREACH), StepConnect, "10.1.2.3:22: network is unreachable", route},
		{call(syscall.ETIMEDOUT), StepConnect, "10.1.2.3:22: no answer", "is the host up, the address right and the port open in the firewall?"},
	} {
		if e := dialError("10.1.2.3:22", tc.err); e.Step != tc.step || e.Err.Error() != tc.text || e.Hint != tc.hint {
			t.Errorf("%v: %s: %v, hint %q; want %s: %s, hint %q", tc.err, e.Step, e.Err, e.Hint, tc.step, tc.text, tc.hint)
		}
	}
}

// TestTwoMachinesAtOneAddress: a host key that changes within one run is no matter of known_hosts.
func TestTwoMachinesAtOneAddress(t *testing.T) {
	home := t.TempDir()
	c := testClient(t, Config{Home: home, LocalUser: "me"}, nil)
	keys := make([]gossh.PublicKey, 2)
	for i := range keys {
		public, _, err := ed25519.GenerateKey(nil)
		must.Do(t, err)
		if keys[i], err = gossh.NewPublicKey(public); err != nil {
			t.Fatal(err)
		}
	}
	s, err := c.settingsFor(t.Context(), "h", false)
	must.Do(t, err)
	k, at := newHostKeys(c.cfg, nil), &net.TCPAddr{IP: net.IPv4(10, 1, 2, 3), Port: 22}
	must.Do(t, k.check(s, at, keys[0]))
	var e *Error
	if err := k.check(s, at, keys[1]); !errors.As(err, &e) || e.Step != StepHostKey ||
		!strings.HasPrefix(e.Err.Error(), "CHANGED since it was accepted a moment ago: is now ") || e.Hint != "two machines answer at this address" {
		t.Errorf("another key: %v", err)
	}
}
