package ssh

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	gossh "golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
)

// maxOffers is how many keys a server accepts before it hangs up: sshd's default MaxAuthTries.
const maxOffers = 6

// keyFile is a private key on disk. It is read once for all hosts, and its passphrase is asked for at most once, after
// a server has accepted the public key.
type keyFile struct {
	path string
	pub  gossh.PublicKey
	cert *gossh.Certificate // path-cert.pub
	skip string             // why it cannot be used; "" if it can
	note sync.Once          // reports skip once, for a key that the user named
	open atomic.Bool        // signer is there

	mu     sync.Mutex
	signer gossh.Signer
	pem    []byte // of an encrypted key until it is unlocked
	err    error  // the user did not unlock it
}

// readKey loads path. It returns an error if the file does not exist; any other problem is in skip.
func readKey(path string) (*keyFile, error) {
	k := &keyFile{path: path}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		// A public key alone selects one of the agent's keys.
		if k.pub, err = readPublic(path + ".pub"); err != nil {
			return nil, fs.ErrNotExist
		}
		k.skip = "the private key is not in the agent"
		return k, nil
	}
	if err != nil {
		k.skip = reason(err)
		return k, nil
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 1<<20))
	if err != nil {
		k.skip = reason(err)
		return k, nil
	}
	if pub, _, _, _, err := gossh.ParseAuthorizedKey(text); err == nil {
		k.pub, k.skip = pub, "it is a public key and its private key is not in the agent"
		return k, nil
	}
	// As in OpenSSH: only a key of the user's own can be protected by its mode; mounted secrets belong to root.
	if st, err := f.Stat(); err == nil && st.Mode().Perm()&0o077 != 0 && ownedByMe(st) {
		k.skip = fmt.Sprintf("its permissions %#o let others read it; chmod 600 %s", st.Mode().Perm(), path)
	}
	signer, err := gossh.ParsePrivateKey(text)
	var locked *gossh.PassphraseMissingError
	switch {
	case err == nil:
		k.signer, k.pub = signer, signer.PublicKey()
		k.open.Store(true)
	case errors.As(err, &locked):
		k.pem = text
		if k.pub = locked.PublicKey; k.pub == nil {
			if k.pub, err = readPublic(path + ".pub"); err != nil {
				k.skip = "it has a passphrase, and there is no .pub file beside it"
			}
		}
	default:
		k.skip = oneLine(strings.TrimPrefix(err.Error(), "ssh: "))
	}
	if cert, err := readPublic(path + "-cert.pub"); err == nil {
		k.cert, _ = cert.(*gossh.Certificate)
	}
	return k, nil
}

func reason(err error) string {
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		return pathErr.Err.Error()
	}
	return oneLine(err.Error())
}

func readPublic(path string) (gossh.PublicKey, error) {
	text, err := readText(path)
	if err != nil {
		return nil, err
	}
	pub, _, _, _, err := gossh.ParseAuthorizedKey(text)
	return pub, err
}

// unlock returns the signer, asking for the passphrase if there is one. All hosts wait for the same answer.
func (k *keyFile) unlock(name string, ask func(string) (string, error)) (gossh.Signer, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.signer != nil || k.err != nil {
		return k.signer, k.err
	}
	const tries = 3
	for range tries {
		answer, err := ask(fmt.Sprintf("Enter passphrase for key %s: ", name))
		if errors.Is(err, context.Canceled) {
			return nil, err // this host is given up; that is no answer for the others
		}
		if err != nil {
			k.err = fmt.Errorf("passphrase for %s: %w", name, err)
			return nil, k.err
		}
		signer, err := gossh.ParsePrivateKeyWithPassphrase(k.pem, []byte(answer))
		if err == nil {
			k.signer, k.pem = signer, nil
			k.open.Store(true)
			return signer, nil
		}
		if !errors.Is(err, x509.IncorrectPasswordError) {
			k.err = fmt.Errorf("unlock %s: %w", name, err)
			return nil, k.err
		}
	}
	k.err = fmt.Errorf("wrong passphrase for %s, %d times", name, tries)
	return nil, k.err
}

// user asks for passphrases during one attempt to log in.
type user struct {
	ask   func(question string) (string, error) // nil = no one can be asked
	pause func() (resume func())                // stops the time limit of the attempt
}

// lockedSigner offers a key without unlocking it.
type lockedSigner struct {
	file *keyFile
	name string
	user user
}

func (s *lockedSigner) PublicKey() gossh.PublicKey { return s.file.pub }

func (s *lockedSigner) Sign(rand io.Reader, data []byte) (*gossh.Signature, error) {
	return s.SignWithAlgorithm(rand, data, "")
}

func (s *lockedSigner) SignWithAlgorithm(rand io.Reader, data []byte, algorithm string) (*gossh.Signature, error) {
	resume := s.user.pause() // the question may be open for another host
	signer, err := s.file.unlock(s.name, s.user.ask)
	resume()
	if err != nil {
		return nil, err
	}
	if as, ok := signer.(gossh.AlgorithmSigner); ok {
		return as.SignWithAlgorithm(rand, data, algorithm)
	}
	return signer.Sign(rand, data)
}

// agentKeys is a connection to an ssh agent and the keys it listed.
type agentKeys struct {
	conn    net.Conn
	signers []gossh.Signer
	names   map[string]string // by public key
	err     error
}

// openAgent lists the agent's keys. Using one later may wait for a touch on a token; listing does not.
func openAgent(socket string) *agentKeys {
	a := &agentKeys{names: map[string]string{}}
	const limit = 5 * time.Second
	if a.conn, a.err = net.DialTimeout("unix", socket, limit); a.err != nil {
		return a
	}
	client := agent.NewClient(a.conn)
	a.conn.SetDeadline(time.Now().Add(limit))
	keys, err := client.List()
	if err == nil {
		for _, k := range keys {
			a.names[string(k.Blob)] = k.Comment
		}
		a.signers, err = client.Signers()
	}
	if a.err = err; err != nil {
		a.conn.Close()
		a.conn = nil
		return a
	}
	a.conn.SetDeadline(time.Time{})
	return a
}

func (a *agentKeys) holding(pub gossh.PublicKey) gossh.Signer {
	if pub == nil {
		return nil
	}
	for _, s := range a.signers {
		if bytes.Equal(s.PublicKey().Marshal(), pub.Marshal()) {
			return s
		}
	}
	return nil
}

// offer holds the keys for one login, in the order in which the server sees them, and how to report that none was
// accepted.
type offer struct {
	signers []gossh.Signer
	names   []string
	skipped []string
	agent   string // the state of the agent, "" if it answered
}

func (o *offer) add(s *settings, signer gossh.Signer, name string) {
	if signer = allow(signer, s.userKeys); signer == nil {
		o.skipped = append(o.skipped, name+": PubkeyAcceptedAlgorithms of ssh_config has none for it")
		return
	}
	if shortRSA(signer.PublicKey(), s.minRSA) {
		o.skipped = append(o.skipped, name+": it has fewer bits than RequiredRSASize")
		return
	}
	for _, have := range o.signers {
		if bytes.Equal(have.PublicKey().Marshal(), signer.PublicKey().Marshal()) {
			return
		}
	}
	if len(o.signers) == maxOffers {
		o.skipped = append(o.skipped, name+": the server allows no more than "+fmt.Sprint(maxOffers)+" keys")
		return
	}
	o.signers = append(o.signers, signer)
	o.names = append(o.names, name)
}

// keysFor collects the keys for a login: first those named for the host, then the agent's, then the default files. It
// fails only if a key named on the command line does not exist.
func (c *Client) keysFor(s *settings, u user) (*offer, error) {
	o := &offer{}
	held := c.agentAt(s.agent)
	switch {
	case s.agent == "":
		o.agent = "no ssh agent"
	case held.err != nil:
		o.agent = "ssh agent: " + oneLine(held.err.Error())
	}
	if s.batch {
		u.ask = nil
	}
	for i, path := range s.explicitKeys {
		k, err := c.key(path)
		if err == nil {
			if i < s.requiredKeys && k.skip != "" && held.holding(k.pub) == nil {
				k.note.Do(func() { c.cfg.Note(s.host, fmt.Sprintf("-i %s is not used: %s", c.cfg.shortPath(path), k.skip)) })
			}
			c.addFile(o, s, k, held, u)
		} else if i < s.requiredKeys {
			return nil, &Error{Step: StepAuthenticate, Err: fmt.Errorf("no such identity file: %s", c.cfg.shortPath(path)), Hint: "check the path given with -i"}
		} else {
			o.skipped = append(o.skipped, c.cfg.shortPath(path)+": no such file")
		}
	}
	if !s.agentOnly {
		for _, signer := range held.signers {
			o.add(s, signer, "agent:"+oneLine(held.names[string(signer.PublicKey().Marshal())]))
		}
	}
	for _, path := range s.defaultKeys {
		if k, err := c.key(path); err == nil {
			c.addFile(o, s, k, held, u)
		}
	}
	return o, nil
}

// addFile offers a key file: first as a certificate, if it has one, and signed by the agent, if that holds it unlocked.
func (c *Client) addFile(o *offer, s *settings, k *keyFile, held *agentKeys, u user) {
	name := c.cfg.shortPath(k.path)
	signer := held.holding(k.pub)
	switch {
	case signer != nil:
	case k.skip != "":
		o.skipped = append(o.skipped, name+": "+k.skip)
		return
	case !k.open.Load() && u.ask == nil:
		o.skipped = append(o.skipped, name+": it has a passphrase, and there is no terminal to ask for it; ssh-add it")
		return
	default:
		signer = &lockedSigner{file: k, name: name, user: u}
	}
	certs := []*gossh.Certificate{k.cert}
	for _, path := range s.certificates {
		if pub, err := readPublic(path); err == nil {
			cert, _ := pub.(*gossh.Certificate)
			certs = append(certs, cert)
		}
	}
	for _, cert := range certs {
		if cert == nil || !bytes.Equal(cert.Key.Marshal(), k.pub.Marshal()) {
			continue
		}
		if signed, err := gossh.NewCertSigner(cert, signer); err == nil {
			o.add(s, signed, name+" (certificate)")
		}
	}
	o.add(s, signer, name)
}
