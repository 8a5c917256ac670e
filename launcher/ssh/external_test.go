package ssh

import (
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
