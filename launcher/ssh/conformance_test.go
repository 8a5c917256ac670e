package ssh_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"
	gossh "golang.org/x/crypto/ssh"

	"gorun/contrib/must"
	"gorun/launcher/ssh"
)

// likeSSH is a configuration with which OpenSSH's client and gorun log in to the same sshd, or refuse to. The words in
// capitals are replaced: DIR is a directory for this login alone, PORT an sshd with three keys, CERT one with a
// certificate, OLD and OTHER ones whose certificates are expired and for another name, RSACERT one with an authority of
// RSA; ED and RSA are keys of the first, CAKEY and RSACAKEY the authorities, SHOWN the certificate of CERT and BARE
// its key, and BAD is a key of no one.
type likeSSH struct {
	config string // comes before what all configurations have
	known  string // in place of the right line
	prefix string // shell commands, in DIR
	new    bool   // the one allowed difference: gorun accepts a new key
	says   string // what gorun says
}

const (
	right   = "[127.0.0.1]:PORT ED"
	unknown = "elsewhere ED"
)

var conformance = []likeSSH{
	// The policy, and none.
	{},
	{config: "StrictHostKeyChecking ask", known: unknown},
	{config: "UNSET", known: unknown, new: true},
	{config: "UNSET\n# StrictHostKeyChecking ask", known: unknown, new: true},
	{config: "UNSET\nHost other\n StrictHostKeyChecking ask", known: unknown, new: true},
	{config: "UNSET\nMatch final all\n StrictHostKeyChecking ask", known: unknown},
	{config: "UNSET\nMatch final host other\n StrictHostKeyChecking yes", known: unknown, new: true},
	{config: "UNSET\nInclude DIR/more", prefix: "echo ' \"StrictHostKeyChecking\" ask' >more", known: unknown},
	{config: "UNSET\nHost box\n StrictHostKeyChecking=ASK", known: unknown},
	{config: "UNSET\nHost 127.0.0.1\n StrictHostKeyChecking ask", known: unknown, new: true},
	{config: "StrictHostKeyChecking accept-new", known: unknown},
	{config: "StrictHostKeyChecking accept-new", known: "[127.0.0.1]:PORT BAD"},
	{config: "StrictHostKeyChecking no", known: "[127.0.0.1]:PORT BAD"},
	{known: unknown},
	{known: "[127.0.0.1]:PORT BAD"},
	{config: "StrictHostKeyChecking nonsense"},
	// Names in known_hosts.
	{config: "HostName localhost", known: "[LocalHost]:PORT ED"},
	{config: "HostName LOCALHOST\nStrictHostKeyChecking accept-new", known: "[localhost]:PORT BAD"},
	{config: "HostName 127.1"},
	{known: "127.0.0.1 ED"},
	{known: "127.0.0.1 BAD"},
	{config: "StrictHostKeyChecking accept-new", known: "127.0.0.1 BAD"},
	{known: "[127.0.0.1]:22 ED"},
	{known: "[127.0.0.*]:PORT ED"},
	{known: "[127.0.0.?]:* ED"},
	{known: "* ED"},
	{known: "*,![127.0.0.1]:PORT ED"},
	{known: "  \t[127.0.0.1]:PORT\tED"},
	{known: "\n# [127.0.0.1]:PORT BAD\n\n[127.0.0.1]:PORT ED\r\n"},
	{known: "[127.0.0.1]:PORT ssh-future AAAA\nnonsense\n[127.0.0.1]:PORT ED"},
	{known: "[127.0.0.1]:PORT ED\n[127.0.0.1]:PORT BAD"},
	{known: "[127.0.0.1]:PORT BAD\n[127.0.0.1]:PORT ED"},
	{known: "[127.0.0.1]:PORT RSA"},
	{known: "[127.0.0.1]:PORT RSA\n[127.0.0.1]:PORT BAD"},
	{known: right, prefix: "ssh-keygen -q -H -f known_hosts"},
	{known: unknown, prefix: "ssh-keygen -q -H -f known_hosts"},
	{known: "[127.0.0.1]:PORT BAD", config: "StrictHostKeyChecking accept-new", prefix: "ssh-keygen -q -H -f known_hosts"},
	{known: "|1|nonsense|more ED\n" + right},
	{config: "HostKeyAlias cluster", known: "cluster ED"},
	{config: "HostKeyAlias cluster"},
	{config: "HostKeyAlias cluster\nStrictHostKeyChecking accept-new", known: "cluster BAD"},
	{config: "UserKnownHostsFile none\nGlobalKnownHostsFile DIR/known_hosts"},
	{config: "UserKnownHostsFile none"},
	{config: "UserKnownHostsFile none\nStrictHostKeyChecking accept-new", known: unknown},
	{config: "UserKnownHostsFile none\nStrictHostKeyChecking no", known: unknown},
	{config: "UserKnownHostsFile /dev/null"},
	{config: "UserKnownHostsFile /dev/null\nGlobalKnownHostsFile DIR/known_hosts", known: "[127.0.0.1]:PORT BAD"},
	{config: "UserKnownHostsFile DIR/none DIR/known_hosts"},
	{config: "UserKnownHostsFile \"DIR/known hosts\"", prefix: "mv known_hosts 'known hosts'"},
	{config: "UserKnownHostsFile DIR/%k\nHostKeyAlias cluster", prefix: "echo cluster ED >cluster"},
	{config: "StrictHostKeyChecking accept-new\nHashKnownHosts yes", known: unknown},
	{config: "CheckHostIP yes\nHostName localhost", known: "[localhost]:PORT ED\n[127.0.0.1]:PORT BAD"},
	{config: "NoHostAuthenticationForLocalhost yes", known: "[127.0.0.1]:PORT BAD"},
	{config: "NoHostAuthenticationForLocalhost yes\nHostKeyAlias cluster", known: "cluster BAD"},
	// Revoked keys.
	{known: right + "\n@revoked * ED", says: " is marked as revoked in ~/ours/known_hosts:2"},
	{known: "@revoked * ED", config: "StrictHostKeyChecking accept-new"},
	{known: "@revoked * ED", config: "StrictHostKeyChecking no"}, // as if it had changed
	{known: right + "\n@revoked elsewhere ED"},
	{known: right + "\n@revoked * BAD"},
	{known: right + "\n@nonsense * BAD"},
	{config: "RevokedHostKeys DIR/krl", prefix: "echo ED >revoked; ssh-keygen -q -k -f krl revoked"},
	// Authorities.
	{config: "Port CERT", known: "@cert-authority * CAKEY"},
	{config: "Port CERT", known: "@cert-authority [127.0.0.1]:CERT CAKEY"},
	{config: "Port CERT", known: "@cert-authority elsewhere CAKEY"},
	{config: "Port CERT", known: "@cert-authority * BAD"},
	{config: "Port CERT", known: "@cert-authority * BAD\n* BARE"},
	{config: "Port CERT", known: "* CAKEY"},
	{config: "Port CERT", known: "* BARE"},
	{config: "Port CERT", known: "@cert-authority * CAKEY\n@revoked * CAKEY"},
	{config: "Port CERT", known: "@cert-authority * CAKEY\n@revoked * BARE"},
	{config: "Port CERT\nHostKeyAlias elsewhere", known: "@cert-authority * CAKEY"},
	{config: "Port CERT\nHostKeyAlias certbox", known: "@cert-authority * CAKEY"},
	{config: "Port CERT\nHostKeyAlgorithms ssh-ed25519", known: "@cert-authority * CAKEY"},
	{config: "Port CERT\nHostKeyAlgorithms ssh-ed25519-cert-v01@openssh.com", known: "@cert-authority * CAKEY"},
	{config: "Port CERT\nHostKeyAlgorithms ssh-ed25519-cert-v01@openssh.com", known: "* BARE"},
	{config: "Port CERT\nCASignatureAlgorithms ssh-ed25519", known: "@cert-authority * CAKEY"},
	{config: "Port CERT\nCASignatureAlgorithms rsa-sha2-512", known: "@cert-authority * CAKEY",
		says: "the host's certificate is signed by ssh-ed25519, which CASignatureAlgorithms of ssh_config does not have"},
	{config: "Port RSACERT\nRequiredRSASize 4096", known: "@cert-authority * RSACAKEY"},
	{config: "Port CERT\nCASignatureAlgorithms rsa-sha2-512\nStrictHostKeyChecking accept-new", known: "@cert-authority * CAKEY"},
	{config: "Port OLD", known: "@cert-authority * CAKEY"},
	{config: "Port OLD\nStrictHostKeyChecking accept-new", known: "@cert-authority * CAKEY"},
	{config: "Port CERT\nStrictHostKeyChecking no", known: "@cert-authority * CAKEY\n@revoked * CAKEY"},
	{config: "Port CERT\nHostKeyAlias elsewhere\nStrictHostKeyChecking accept-new", known: "@cert-authority * CAKEY\nelsewhere BAD"},
	{config: "Port OTHER", known: "@cert-authority * CAKEY"},
	{config: "Port OTHER\nHostKeyAlias gpu7.other", known: "@cert-authority * CAKEY"},
	{config: "Port RSACERT", known: "@cert-authority * RSACAKEY"},
	{config: "Port RSACERT\nCASignatureAlgorithms -rsa*", known: "@cert-authority * RSACAKEY"},
	// Algorithms.
	{config: "HostKeyAlgorithms ssh-ed25519-cert-v01@openssh.com"},
	{config: "HostKeyAlgorithms -ssh-ed25519*"},
	{config: "HostKeyAlgorithms -ssh-ed25519*\nStrictHostKeyChecking accept-new"},
	{config: "HostKeyAlgorithms rsa-sha2-512", known: "[127.0.0.1]:PORT RSA"},
	{config: "HostKeyAlgorithms rsa-sha2-256", known: right},
	{config: "HostKeyAlgorithms nonsense"},
	{config: "RequiredRSASize 2048", known: "[127.0.0.1]:PORT RSA"},
	{config: "RequiredRSASize 4096", known: "[127.0.0.1]:PORT RSA"},
	{config: "RequiredRSASize 4096"},
	{config: "Ciphers aes256-gcm@openssh.com,aes256-ctr"},
	{config: "Ciphers aes128-cbc"},
	{config: "MACs hmac-sha2-512-etm@openssh.com\nCiphers aes128-ctr"},
	{config: "MACs umac-128@openssh.com\nCiphers aes128-ctr"},
	{config: "KexAlgorithms ecdh-sha2-nistp384"},
	{config: "KexAlgorithms diffie-hellman-group1-sha1"},
	{config: "PubkeyAcceptedAlgorithms ssh-ed25519"},
	{config: "PubkeyAcceptedAlgorithms -*"},
	{config: "PubkeyAcceptedAlgorithms rsa-sha2-256\nIdentityFile DIR/rsa"},
	{config: "PubkeyAcceptedAlgorithms -rsa*\nIdentityFile DIR/rsa\nIdentityFile none"},
	// Who logs in, and how.
	{config: "PubkeyAuthentication no"},
	{config: "PreferredAuthentications publickey"},
	{config: "PreferredAuthentications password,keyboard-interactive"},
	{config: "User nobody-of-that-name"},
	{config: "IdentityFile DIR/elsewhere"},
	{config: "IdentityFile '~/none'\nIdentityFile DIR/my\\ key", prefix: "mv id 'my key'"},
	{config: "IdentityFile \"DIR/my key\"", prefix: "mv id 'my key'"},
	{config: "IdentityFile DIR/my key", prefix: "mv id 'my key'"},
	{config: "IdentityFile 'DIR/my key'", prefix: "mv id 'my key'"},
	{prefix: "chmod 644 id"},
	{config: "CertificateFile DIR/none"},
	{config: "IdentityAgent none"},
	{config: "IdentityAgent $NONE"},
	{config: "BatchMode yes"},
	// The way.
	{config: "Port 1"},
	{config: "ConnectTimeout 1m"},
	{config: "AddressFamily inet"},
	{config: "AddressFamily inet6"},
	{config: "BindAddress 127.0.0.1"},
	{config: "BindInterface lo"},
	{config: "ProxyCommand false"},
	{config: "ProxyCommand none"},
	{config: "ProxyCommand PYTHON DIR/relay %h %p"},
	{config: "ProxyJump none"},
	{config: "Host box\n HostName 127.0.0.1\n ProxyCommand ssh -F DIR/config -W %h:%p jump\nHost *"},
	{config: "Host box\n ProxyJump jump\nHost *"},
	{config: "Host jump\n UserKnownHostsFile /dev/null\nHost box\n ProxyJump jump\nHost *"},
	{config: "Host jump\n Ciphers aes128-cbc\nHost box\n ProxyJump jump\nHost *"},
	{config: "Host jump\n VerifyHostKeyDNS yes\nHost box\n ProxyJump jump\nHost *"},
	{config: "VerifyHostKeyDNS yes"},
	{config: "UNSET\nVerifyHostKeyDNS yes\nHost box\n ProxyJump jump\nHost *", known: unknown, new: true},
	{config: "VerifyHostKeyDNS yes\nHost first middle\n ProxyCommand none\nHost jump\n ProxyJump first\nHost box\n ProxyJump jump,middle\nHost *"},
	{config: "VerifyHostKeyDNS yes\nForwardAgent yes\nRequestTTY force\nControlMaster auto\nControlPath DIR/%C\nRemoteForward DIR/s DIR/t\nHost jump\n StdinNull yes\nHost box\n ProxyJump jump\nHost *"},
	{config: "KnownHostsCommand DIR/keys %H", known: unknown, prefix: "printf '#!/bin/sh\\necho \"$1\" ED\\n' >keys; chmod 755 keys"},
	// Blocks, quoting, includes.
	{config: "Match exec false\n Port 1\nMatch exec \"test %n = box\"\n BatchMode no\nMatch all"},
	{config: "Match final all\n Port 1"},
	{config: "Match final host 127.*\n HostKeyAlgorithms rsa-sha2-256\nMatch all"},
	{config: "Include DIR/more", prefix: "echo 'Host elsewhere\n Port 1' >more; chmod 666 more"},
	{prefix: "chmod 666 config"},
	{config: "Nonsense yes"},
	{config: "IgnoreUnknown Nonsense\nNonsense yes"},
	// More of each.
	{known: "127.0.0.1,[127.0.0.1]:PORT BAD\n[127.0.0.1]:PORT,x ED"},
	{config: "ProxyCommand PYTHON DIR/relay 127.0.0.1 PORT\nHostName nowhere.invalid\nHostKeyAlias cluster", known: "cluster ED"},
	{config: "ProxyCommand PYTHON DIR/relay 127.0.0.1 PORT\nHostName nowhere.invalid\nNoHostAuthenticationForLocalhost yes", known: "x BAD"},
	{config: "Host jump\n NoHostAuthenticationForLocalhost yes\nHost box\n ProxyJump jump\nHost *", known: "x BAD"},
	{config: "GlobalKnownHostsFile DIR/a DIR/b", known: "x BAD", prefix: "echo '[127.0.0.1]:PORT ED' >b"},
	{config: "HostKeyAlgorithms ^rsa-sha2-512"},
	{config: "HostKeyAlgorithms ^rsa-sha2-512", known: "[127.0.0.1]:PORT RSA\n[127.0.0.1]:PORT BAD"},
	{config: "HostKeyAlgorithms ^rsa-sha2-512\nStrictHostKeyChecking accept-new", known: unknown},
	{config: "UserKnownHostsFile DIR"},
	{config: "IdentityFile none"},
	{config: "Port CERT\nStrictHostKeyChecking accept-new", known: "@revoked * BARE"},
	{config: "CanonicalizeHostname always\nCanonicalDomains invalid\nCanonicalizeFallbackLocal no"},
	{known: "[127.0.0.1]:PORT RSA", prefix: "sed -i s/ssh-rsa/rsa-sha2-512/ known_hosts"},
	{known: "[127.0.0.1]:PORT RSA", config: "HostKeyAlgorithms ^rsa-sha2-512,rsa-sha2-512"},
	{known: "@cert-authority\t*\tCAKEY", config: "Port CERT"},
	{known: "@revoked\t* ED\n" + right},
	{known: right, prefix: "printf '@revoked\\t*\\t%s\\t%s\\n' ED >>known_hosts"},
	{known: unknown, prefix: "printf '@cert-authority\\t*\\t%s\\t%s\\n' CAKEY >>known_hosts", config: "Port CERT"},
	{known: "@revoked * ED\v\n" + right},
	{known: right + "\v"},
	{known: right + "\x00x"},
	{known: unknown, prefix: "printf '[127.0.0.1]:PORT\\fED\\n' >>known_hosts"},
	{config: "Port CERT", known: "@cert-authority * CAKEY\n@revoked * SHOWN"},
	{config: "IdentityFile DIR/id_rsa\nIdentityFile DIR/id_dsa\nIdentityFile DIR/id_ecdsa\nIdentityFile DIR/id_xmss"},
	{config: "RequiredRSASize 4096\nNoHostAuthenticationForLocalhost yes\nHostKeyAlgorithms rsa-sha2-512"},
	{config: "PreferredAuthentications Publickey"},
	// Lists of files, quoted; what cannot be read is skipped.
	{config: "UserKnownHostsFile \"DIR/a b\" DIR/known_hosts"},
	{config: "UserKnownHostsFile \"DIR/a b\"", prefix: "cp known_hosts 'a b'; echo '[127.0.0.1]:PORT BAD' >a"},
	{config: "UserKnownHostsFile DIR DIR/known_hosts"},
	{config: "GlobalKnownHostsFile DIR"},
	// Tokens and variables.
	{config: "ProxyCommand PYTHON DIR/relay %h %p %r %n %k %% ${NONE}"},
	{config: "ProxyCommand PYTHON DIR/relay %h %p %"},
	{config: "Host box\n ProxyJump %u@jump\nHost *"},
	{config: "IdentityFile DIR/%l%L%i%u%r%k%n%p%d ${PATH}"},
	{config: "IdentityFile DIR/${NONE}"},
	{config: "IdentityFile ~no-one-of-that-name/x"},
	{config: "IdentityFile none\nIdentityFile ${PWD%/}/x"},
	{config: "LocalCommand echo %Z"},
	{config: "LocalCommand echo %T %C ${NONE}\nPermitLocalCommand yes"},
	// Of no effect.
	{config: "RemoteCommand uptime\nRequestTTY yes"},
	{config: "ForwardAgent yes\nForwardX11 yes\nRequestTTY force\nControlMaster auto\nControlPath DIR/%C\nCompression yes\nVisualHostKey yes\nSetEnv A=b"},
	{config: "GSSAPIAuthentication yes\nHostbasedAuthentication yes\nUpdateHostKeys ask\nServerAliveInterval 5\nLogLevel QUIET\nRekeyLimit 1G 1h"},
}

// TestLikeSSH: gorun logs in where OpenSSH's client does with the same files, and nowhere else. Each refusal is a line.
func TestLikeSSH(t *testing.T) {
	program, ok := lookPath("ssh")
	if !ok {
		t.Skip("needs ssh: install openssh-client")
	}
	shared := t.TempDir()
	script := func(dir, text string) {
		t.Helper()
		cmd := exec.Command("sh", "-ec", text)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", text, err, out)
		}
	}
	script(shared, `for k in id bad host ca cert old other rsacert; do ssh-keygen -q -t ed25519 -N '' -C '' -f $k; done
		ssh-keygen -q -t rsa -b 2048 -N '' -C '' -f rsa; ssh-keygen -q -t rsa -b 3072 -N '' -C '' -f rsaca
		ssh-keygen -q -t rsa -b 2048 -N '' -C '' -f hostrsa; ssh-keygen -q -t ecdsa -N '' -C '' -f hostec
		ssh-keygen -q -s ca -h -I x -n 127.0.0.1,certbox cert.pub; ssh-keygen -q -s ca -h -I x -n 127.0.0.1 -V 20200101:20200102 old.pub
		ssh-keygen -q -s ca -h -I x -n '*.other' other.pub; ssh-keygen -q -s rsaca -h -I x -n 127.0.0.1 rsacert.pub`)
	read := func(name string) string {
		words := strings.Fields(readText(t, filepath.Join(shared, name+".pub")))
		return words[0] + " " + words[1]
	}
	allowed, _, _, _, err := gossh.ParseAuthorizedKey([]byte(read("id")))
	must.Do(t, err)
	many := "MaxStartups 100:30:200\nAuthorizedKeysFile " + shared + "/authorized\n"
	writeFile(t, filepath.Join(shared, "authorized"), []byte(read("id")+"\n"+read("rsa")+"\n"), 0o644)
	plain := startSSHD(t, allowed, many+strings.ReplaceAll("HostKey DIR/host\nHostKey DIR/hostrsa\nHostKey DIR/hostec\n", "DIR", shared))
	words := []string{"PORT RSA", plain.port + " " + read("hostrsa"), "PORT", plain.port, "ED", read("host"), "BAD", read("bad"),
		"RSACAKEY", read("rsaca"), "CAKEY", read("ca"), "BARE", read("cert"), "PYTHON", "python3", "SHOWN", read("cert-cert")}
	for word, key := range map[string]string{"CERT": "cert", "OLD": "old", "OTHER": "other", "RSACERT": "rsacert"} {
		d := startSSHD(t, allowed, fmt.Sprintf("%sHostKey %s/%s\nHostCertificate %s/%s-cert.pub\n", many, shared, key, shared, key))
		words = append(words, "Port "+word, "Port "+d.port, "]:"+word, "]:"+d.port)
	}
	var both, none atomic.Int32
	t.Run("each", func(t *testing.T) {
		for i, tc := range conformance {
			if testing.Short() && i%8 != 0 {
				continue // make test-all has all of them
			}
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				h := newHome(t)
				prepare := func(name string) string {
					dir := h.path(name)
					replace := strings.NewReplacer(append([]string{"DIR", dir}, words...)...).Replace
					policy := "\n StrictHostKeyChecking yes"
					text, unset := strings.CutPrefix(tc.config, "UNSET")
					if unset {
						policy = ""
					}
					writeFile(t, filepath.Join(dir, "config"), []byte(replace(text+"\nHost *\n HostName 127.0.0.1\n Port PORT\n IdentityFile DIR/id\n IdentitiesOnly yes"+
						"\n UserKnownHostsFile DIR/known_hosts\n GlobalKnownHostsFile /dev/null"+policy+"\nHost jump\n ProxyCommand none\n")), 0o600)
					known := tc.known
					if known == "" {
						known = right
					}
					writeFile(t, filepath.Join(dir, "known_hosts"), []byte(replace(known)+"\n"), 0o600)
					writeFile(t, filepath.Join(dir, "relay"), []byte(relayProgram), 0o600)
					script(dir, "cp "+shared+"/id "+shared+"/rsa .; "+replace(tc.prefix))
					return filepath.Join(dir, "config")
				}
				ctx, cancel := context.WithTimeout(testContext(t), time.Minute)
				defer cancel()
				cmd := exec.CommandContext(ctx, program, "-n", "-F", prepare("theirs"), "-o", "BatchMode=yes", "-o", "RemoteCommand=none", "box", "true")
				cmd.Env = append(os.Environ(), "SSH_AUTH_SOCK=")
				said, theirs := cmd.CombinedOutput()
				h.ConfigFile, h.ConnectTimeout = prepare("ours"), 0
				c := h.client(t)
				conn, ours := c.Connect(ctx, "box")
				if ours == nil {
					ours = runTrue(ctx, conn)
				}
				var e *ssh.Error
				switch {
				case ctx.Err() != nil:
					t.Errorf("no end: ssh %v, gorun %v", theirs, ours)
				case tc.new:
					if theirs == nil || ours != nil {
						t.Errorf("gorun does not accept a new key: %v; ssh: %v\n%s", ours, theirs, said)
					}
				case (theirs == nil) != (ours == nil):
					t.Errorf("ssh: %v\n%s\ngorun: %v", theirs, said, ours)
				case ours == nil:
					both.Add(1)
				default:
					none.Add(1)
				}
				if ours != nil && (strings.Contains(ours.Error(), "\n") || !errors.As(ours, &e)) {
					t.Errorf("gorun says %q", ours)
				}
				if tc.says != "" && !strings.Contains(fmt.Sprint(ours), tc.says) {
					t.Errorf("gorun says %v, not %q", ours, tc.says)
				}
				if t.Failed() {
					t.Logf("with %q, known %q, after %q", tc.config, tc.known, tc.prefix)
				}
			})
		}
	})
	t.Logf("both log in %d times, and refuse %d times", both.Load(), none.Load())
	if ran := both.Load() + none.Load(); ran > 100 && (both.Load() < 60 || none.Load() < 60) {
		t.Errorf("too few of one kind")
	}
}

// runTrue runs a command by a login, as the system's ssh logs in for that only, and closes it.
func runTrue(ctx context.Context, conn *ssh.Conn) error {
	defer conn.Close()
	s, err := conn.Start(ctx, "true")
	if err != nil {
		return err
	}
	io.Copy(io.Discard, s.Stdout)
	why := s.Explain(io.EOF)
	if _, err = s.Wait(); err == nil {
		return nil
	}
	return why
}

const relayProgram = `import os, socket, sys, threading
s = socket.create_connection((sys.argv[1], int(sys.argv[2])))
def up():
    while b := os.read(0, 65536):
        s.sendall(b)
threading.Thread(target=up, daemon=True).start()
while b := s.recv(65536):
    os.write(1, b)
`

// TestStockConfigurations logs in with what distributions install, to a host that is new, and says nothing but that.
func TestStockConfigurations(t *testing.T) {
	archive, err := txtar.ParseFile("testdata/stock.txtar")
	must.Do(t, err)
	for _, name := range []string{"debian-12", "ubuntu-24.04", "rhel-8", "rhel-9", "fedora-42"} {
		t.Run(name, func(t *testing.T) {
			h, _ := sshdHome(t, "")
			for _, f := range archive.Files {
				if rest, ok := strings.CutPrefix(f.Name, name+"/"); ok {
					writeFile(t, h.path(rest), []byte(strings.ReplaceAll(string(f.Data), "Include /etc/", "Include "+h.path("etc")+"/")), 0o644)
				}
			}
			h.ConfigFile = h.path("etc/ssh/ssh_config")
			text := readText(t, h.ConfigFile) + "\nMatch all\n" + strings.TrimPrefix(readText(t, h.path(".ssh/config")), "\n")
			writeFile(t, h.ConfigFile, []byte(text), 0o644)
			connect(t, h.client(t), "box")
			if strings.Count(h.noted(), "\n") != 1 || !strings.Contains(h.noted(), "accepted: ed25519") {
				t.Errorf("it says %q", h.noted())
			}
		})
	}
}
