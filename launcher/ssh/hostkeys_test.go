package ssh_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
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
	if n := srv.accepted.Load(); n != 1 {
		t.Errorf("tried %d times", n)
	}
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

// The server has two keys; only the one that known_hosts lists may be asked for.
func TestKnownAlgorithmIsAskedFor(t *testing.T) {
	srv, h := startServer(t), newHome(t)
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Do(t, err)
	second, err := gossh.NewSignerFromKey(private)
	must.Do(t, err)
	srv.conf.AddHostKey(second)
	h.config(t, "StrictHostKeyChecking yes\n")
	for _, key := range []gossh.Signer{second, srv.key} {
		writeFile(t, h.path(".ssh/known_hosts"), []byte(xknownhosts.Line([]string{srv.addr}, key.PublicKey())+"\n"), 0o600)
		connect(t, h.client(t), srv.addr)
	}
}

func TestKnownHostsForms(t *testing.T) {
	srv, h := startServer(t), newHome(t)
	_, keyText, _ := strings.Cut(xknownhosts.Line([]string{"x"}, srv.key.PublicKey()), " ")
	ca := newSigner(t)
	name := fmt.Sprintf("[127.0.0.1]:%s", srv.port())
	tests := map[string]struct {
		line, config string
		bad          []string // nil = accepted
	}{
		"plain":          {line: name + " " + keyText},
		"hashed":         {line: xknownhosts.HashHostname(name) + " " + keyText},
		"wildcard":       {line: "127.0.0.* " + keyText},
		"alias":          {line: "cluster " + keyText, config: "HostKeyAlias cluster"},
		"bad lines":      {line: "x ssh-future AAAAB3NzaC1\nrubbish\n" + name + " " + keyText},
		"another file":   {config: "UserKnownHostsFile DIR/other /dev/null"},
		"machine's file": {},
		"only another":   {line: "elsewhere " + keyText, bad: []string{"unknown key"}},
		"revoked":        {line: "@revoked * " + keyText, bad: []string{" is marked as revoked in ~/.ssh/known_hosts:1"}},
		"bad line, changed": {line: "rubbish\n\n" + xknownhosts.Line([]string{srv.addr}, ca.PublicKey()),
			bad: []string{"CHANGED", "~/.ssh/known_hosts:3"}},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			for _, f := range []string{"other", "etc/ssh_known_hosts"} {
				os.Remove(h.path(f))
			}
			switch title {
			case "another file":
				writeFile(t, h.path("other"), []byte(name+" "+keyText), 0o600)
			case "machine's file":
				writeFile(t, h.path("etc/ssh_known_hosts"), []byte(name+" "+keyText), 0o600)
			}
			writeFile(t, h.path(".ssh/known_hosts"), []byte(test.line+"\n"), 0o600)
			h.config(t, "StrictHostKeyChecking yes\n"+strings.ReplaceAll(test.config, "DIR", h.path()))
			if test.bad == nil {
				connect(t, h.client(t), srv.addr)
			} else {
				refused(t, h.client(t), srv.addr, ssh.StepHostKey, test.bad...)
			}
		})
	}
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

func TestHostCertificate(t *testing.T) {
	srv, h := startServer(t), newHome(t)
	ca := newSigner(t)
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader) // another type than the authority's
	must.Do(t, err)
	key, err := gossh.NewSignerFromKey(private)
	must.Do(t, err)
	cert := &gossh.Certificate{Key: key.PublicKey(), CertType: gossh.HostCert, ValidPrincipals: []string{"127.0.0.1"}, ValidBefore: gossh.CertTimeInfinity}
	must.Do(t, cert.SignCert(rand.Reader, ca))
	if srv.key, err = gossh.NewCertSigner(cert, key); err != nil {
		t.Fatal(err)
	}
	h.config(t, "StrictHostKeyChecking yes\n")
	line := "@cert-authority * " + string(gossh.MarshalAuthorizedKey(ca.PublicKey()))
	writeFile(t, h.path(".ssh/known_hosts"), []byte(line), 0o600)
	connect(t, h.client(t), srv.addr)

	other := startServer(t)
	foreign := *cert
	foreign.ValidPrincipals = []string{"another"}
	must.Do(t, foreign.SignCert(rand.Reader, ca))
	if other.key, err = gossh.NewCertSigner(&foreign, key); err != nil {
		t.Fatal(err)
	}
	refused(t, h.client(t), other.addr, ssh.StepHostKey, "another")

	users := startServer(t)
	user := *cert
	user.CertType = gossh.UserCert
	must.Do(t, user.SignCert(rand.Reader, ca))
	if users.key, err = gossh.NewCertSigner(&user, key); err != nil {
		t.Fatal(err)
	}
	refused(t, h.client(t), users.addr, ssh.StepHostKey, "the host shows the certificate of a user")
}
