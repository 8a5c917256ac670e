package ssh

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gorun/contrib/must"
)

// TestSystemSSHHangsUp: the last line of the system's ssh shows whether the host has ended the connection, unless
// something is between the two that may have, or that keeps them from us.
func TestSystemSSHHangsUp(t *testing.T) {
	needsSSH(t)
	config := filepath.Join(t.TempDir(), "config")
	must.Do(t, os.WriteFile(config, []byte("Host far\n ProxyJump near\nHost quiet\n LogLevel ERROR\nHost *\n MACs umac-64@openssh.com\n VerifyHostKeyDNS yes\n UserKnownHostsFile a b\n"), 0o600))
	const closed = "Connection to box closed by remote host.\r\n"
	for _, tc := range []struct {
		command []string
		host    string
		said    string
		want    bool
	}{
		{[]string{"ssh"}, "box", closed, true},
		{[]string{"/usr/bin/ssh", "-p", "22"}, "box", "Connection closed by 10.0.0.1 port 22\r\n", true},
		{[]string{"ssh"}, "box", "client_loop: send disconnect: Broken pipe\r\n", true},
		{[]string{"ssh"}, "box", "", true}, // as when the command was killed
		{[]string{"ssh"}, "box", "Warning: Permanently added 'box' (ED25519) to the list of known hosts.\r\n", true},
		{[]string{"ssh"}, "box", "client_loop: send disconnect: Connection reset by peer\r\n", false},
		{[]string{"ssh"}, "box", "Timeout, server box not responding.\r\n", false},
		{[]string{"ssh"}, "far", closed, false},
		{[]string{"ssh"}, "quiet", "", false},
		{[]string{"ssh", "-q"}, "box", "", false},
		{[]string{"ssh", "-o", "LogLevel=QUIET"}, "box", "", false},
		{[]string{"ssh", "-o", "ProxyCommand=nc %h %p"}, "box", closed, false},
		{[]string{"ssh", "-J", "near"}, "box", closed, false},
		{[]string{"./my-ssh"}, "box", closed, false},
	} {
		c, err := New(Config{LocalUser: "me", Home: t.TempDir(), ConfigFile: config, Command: tc.command})
		must.Do(t, err)
		conn, err := c.Connect(t.Context(), tc.host)
		must.Do(t, err)
		if got := conn.HungUp(tc.said); got != tc.want {
			t.Errorf("%v %s says %q: hung up %v", tc.command, tc.host, tc.said, got)
		}
		conn.Close()
		c.Close()
	}
}

// TestWhyOpenSSHFails: of OpenSSH's messages that of a bastion counts, not that the host's connection is closed then; who is refused is not
// tried again.
func TestWhyOpenSSHFails(t *testing.T) {
	const closed = "kex_exchange_identification: Connection closed by remote host\nConnection closed by UNKNOWN port 65535\n"
	for said, want := range map[string]struct {
		step, line string
		tries      int
	}{
		"me@jump: Permission denied (publickey).\n" + closed:                                      {StepAuthenticate, "me@jump: Permission denied (publickey).", 1},
		"@@@\nHost key verification failed.\n" + closed:                                           {StepHostKey, "Host key verification failed.", 1},
		"ssh: connect to host jump port 22: Connection refused\n" + closed:                        {StepConnect, "ssh: connect to host jump port 22: Connection refused", 1},
		"Connection timed out during banner exchange\nConnection to 10.0.0.1 port 22 timed out\n": {StepHandshake, "Connection to 10.0.0.1 port 22 timed out", 1},
		"kex_exchange_identification: read: Connection reset by peer\n":                           {StepHandshake, "kex_exchange_identification: read: Connection reset by peer", 3},
	} {
		tries := filepath.Join(t.TempDir(), "tries")
		c, err := New(Config{LocalUser: "me", Home: t.TempDir(), Command: []string{"sh", "-c", `echo >>"$0"; printf %s "$1" >&2; exit 255`, tries, said}})
		must.Do(t, err)
		GiveUpSoon(c)
		conn, err := c.Connect(t.Context(), "box")
		must.Do(t, err)
		_, err = conn.Bootstrap(t.Context(), Binary{SHA256: strings.Repeat("0a", 32), Platform: "Linux x86_64"}, nil)
		var e *Error
		if !errors.As(err, &e) || e.Step != want.step || errors.Is(err, ErrBroken) || !strings.HasSuffix(e.Err.Error(), ": "+want.line) {
			t.Errorf("%q: %v, want %s: %s", said, err, want.step, want.line)
		}
		if text, _ := os.ReadFile(tries); len(text) != want.tries {
			t.Errorf("%q: tried %d times, want %d", said, len(text), want.tries)
		}
		conn.Close()
		c.Close()
	}
}

// TestBootstrapOfBrokenBinary: what stands in the script without quotes has no place for anything else.
func TestBootstrapOfBrokenBinary(t *testing.T) {
	good := Binary{SHA256: strings.Repeat("0a", 32), Platform: "Linux x86_64"}
	if _, err := bootstrapCommand("1", good, hostTimeout, nil); err != nil {
		t.Fatal(err)
	}
	for want, spoil := range map[string]func(b *Binary){
		"bad SHA-256 \"$(id)\"":   func(b *Binary) { b.SHA256 = "$(id)" },
		"bad platform \"Linux;\"": func(b *Binary) { b.Platform = "Linux;" },
	} {
		b := good
		spoil(&b)
		if _, err := bootstrapCommand("1", b, hostTimeout, nil); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
