package ssh_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"gorun/launcher/ssh"
)

// TestFIPSOnly: in FIPS 140-only mode gorun logs in by what that mode allows, also where the names of known hosts are
// hashed with SHA-1. An error names the mode if the server has nothing of that.
func TestFIPSOnly(t *testing.T) {
	if !strings.Contains(os.Getenv("GODEBUG"), "fips140=only") {
		again := exec.Command(os.Args[0], "-test.run=^TestFIPSOnly$", "-test.v")
		again.Env = append(os.Environ(), "GODEBUG=fips140=only")
		if out, err := again.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestFIPSOnly/hashed") {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	t.Run("hashed", func(t *testing.T) {
		h, d := sshdHome(t, "")
		h.config(t, fmt.Sprintf("Host box\n HostName 127.0.0.1\n Port %s\n HashKnownHosts yes\n", d.port))
		for range 2 { // the second finds what the first has written
			converse(t, connect(t, h.client(t), "box"), program(100<<10), "0022")
		}
		if text := readText(t, h.path(".ssh/known_hosts")); strings.Count(text, "|1|") != 1 {
			t.Errorf("known hosts: %s", text)
		}
	})
	t.Run("nothing in common", func(t *testing.T) {
		h, _ := sshdHome(t, "KexAlgorithms curve25519-sha256")
		refused(t, h.client(t), "box", ssh.StepHandshake, "no common algorithm for key exchange", "FIPS 140-only mode")
	})
	t.Run("another client", func(t *testing.T) {
		h := newHome(t)
		h.config(t, "VerifyHostKeyDNS yes\n")
		refused(t, h.client(t), "box", ssh.StepConfig, "this VerifyHostKeyDNS needs OpenSSH's client, which FIPS 140-only mode does not limit", "--ssh-command ssh logs in by it")
	})
}
