package ssh_test

import (
	"crypto/rand"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	gossh "golang.org/x/crypto/ssh"
	xknownhosts "golang.org/x/crypto/ssh/knownhosts"

	"gorun/contrib/must"
	"gorun/launcher/ssh"
)

func TestNewHostKeyIsAcceptedOnce(t *testing.T) {
	srv, h := startServer(t), newHome(t)
	known := h.path(".ssh/known_hosts")
	connect(t, h.client(t), srv.addr)
	line := readText(t, known)
	if want := xknownhosts.Line([]string{srv.addr}, srv.key.PublicKey()) + "\n"; line != want {
		t.Errorf("known_hosts has %q, want %q", line, want)
	}
	if st, err := os.Stat(known); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode of known_hosts: %v %v", st.Mode(), err)
	}
	if want := "host key of 127.0.0.1 accepted: ed25519 " + gossh.FingerprintSHA256(srv.key.PublicKey()); !strings.Contains(h.noted(), want) {
		t.Errorf("user was told %q, want %q", h.noted(), want)
	}
	connect(t, h.client(t), srv.addr)
	if again := readText(t, known); again != line || strings.Count(h.noted(), "\n") != 1 {
		t.Errorf("second login: known_hosts %q, notes %q", again, h.noted())
	}
}

func TestManyHostsAtOnceRecordOneKey(t *testing.T) {
	srv, h := startServer(t), newHome(t)
	writeFile(t, h.path(".ssh/known_hosts"), []byte("# no newline at the end"), 0o600)
	c := h.client(t)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { connect(t, c, srv.addr) })
	}
	wg.Wait()
	if got := strings.Split(strings.TrimSpace(readText(t, h.path(".ssh/known_hosts"))), "\n"); len(got) != 2 || got[0] != "# no newline at the end" {
		t.Errorf("known_hosts: %q", got)
	}
}

func TestChangedHostKey(t *testing.T) {
	srv, h := startServer(t), newHome(t)
	other := newSigner(t).PublicKey()
	writeFile(t, h.path(".ssh/known_hosts"), []byte("# first\n"+xknownhosts.Line([]string{srv.addr}, other)+"\n"), 0o600)
	refused(t, h.client(t), srv.addr, ssh.StepHostKey, "CHANGED: is now ed25519 ", ", but ~/.ssh/known_hosts:2 has ", gossh.FingerprintSHA256(other),
		gossh.FingerprintSHA256(srv.key.PublicKey()), fmt.Sprintf(`if the machine was reinstalled: ssh-keygen -f ~/.ssh/known_hosts -R "[127.0.0.1]:%s"`, srv.port()))
	expect(t, "connections", &srv.accepted, 1)
	h.config(t, "StrictHostKeyChecking no\n")
	connect(t, h.client(t), srv.addr)
	if !strings.Contains(h.noted(), "has changed") {
		t.Errorf("no warning: %q", h.noted())
	}
}

func TestStrictHostKey(t *testing.T) {
	srv, h := startServer(t), newHome(t)
	h.config(t, "StrictHostKeyChecking yes\n")
	refused(t, h.client(t), srv.addr, ssh.StepHostKey, "unknown key", "StrictHostKeyChecking", "log in once by hand")
	h.config(t, "StrictHostKeyChecking accept-new\n")
	connect(t, h.client(t), srv.addr)
	h.config(t, "StrictHostKeyChecking yes\n")
	connect(t, h.client(t), srv.addr)
}

func TestHashKnownHosts(t *testing.T) {
	srv, h := startServer(t), newHome(t)
	h.config(t, "HashKnownHosts yes\n")
	connect(t, h.client(t), srv.addr)
	if line := readText(t, h.path(".ssh/known_hosts")); !strings.HasPrefix(line, "|1|") {
		t.Errorf("known_hosts: %q", line)
	}
	h.config(t, "StrictHostKeyChecking yes\n")
	connect(t, h.client(t), srv.addr)
}

// A home that cannot be written to is no reason to fail.
func TestKnownHostsCannotBeWritten(t *testing.T) {
	srv, h := startServer(t), newHome(t)
	writeFile(t, h.path("file"), nil, 0o600)
	h.config(t, "UserKnownHostsFile "+h.path("file/known_hosts"))
	connect(t, h.client(t), srv.addr)
}

// TestHostCertificate: the certificate of a user is none of a host, though its authority is known.
func TestHostCertificate(t *testing.T) {
	srv, h := startServer(t), newHome(t)
	ca, key := newSigner(t), newSigner(t)
	cert := &gossh.Certificate{Key: key.PublicKey(), CertType: gossh.UserCert, ValidPrincipals: []string{"127.0.0.1"}, ValidBefore: gossh.CertTimeInfinity}
	must.Do(t, cert.SignCert(rand.Reader, ca))
	var err error
	srv.key, err = gossh.NewCertSigner(cert, key)
	must.Do(t, err)
	h.config(t, "StrictHostKeyChecking yes\n")
	writeFile(t, h.path(".ssh/known_hosts"), []byte("@cert-authority * "+string(gossh.MarshalAuthorizedKey(ca.PublicKey()))), 0o600)
	refused(t, h.client(t), srv.addr, ssh.StepHostKey, "the host shows the certificate of a user")
}
