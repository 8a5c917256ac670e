package ssh

import (
	"bytes"
	"crypto/fips140"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/skeema/knownhosts"
	gossh "golang.org/x/crypto/ssh"
	xknownhosts "golang.org/x/crypto/ssh/knownhosts"
	"golang.org/x/sys/unix"
)

// hostKeys is one list of known_hosts files, shared by all hosts that use the same list. The files are read once; keys
// accepted since are kept beside them, so that 1,000 new hosts do not cause 1,000 reads.
type hostKeys struct {
	files []string
	cfg   Config

	mu       sync.Mutex
	db       *knownhosts.HostKeyDB
	original map[string]string // copy without the lines that do not parse → its original
	size     int64             // of all files together when last read or appended to
	accepted map[string][]gossh.PublicKey
}

func newHostKeys(cfg Config, files []string) *hostKeys {
	return &hostKeys{files: files, cfg: cfg, accepted: map[string][]gossh.PublicKey{}}
}

// plainAlgorithms is OpenSSH's order of preference for the keys of an unknown host.
var plainAlgorithms = []string{
	gossh.KeyAlgoED25519, gossh.KeyAlgoECDSA256, gossh.KeyAlgoECDSA384, gossh.KeyAlgoECDSA521,
	gossh.KeyAlgoRSASHA512, gossh.KeyAlgoRSASHA256,
}

var certAlgorithms = []string{
	gossh.CertAlgoED25519v01, gossh.CertAlgoECDSA256v01, gossh.CertAlgoECDSA384v01, gossh.CertAlgoECDSA521v01,
	gossh.CertAlgoRSASHA512v01, gossh.CertAlgoRSASHA256v01,
}

// algorithms returns the host key algorithms to request: first the ones known_hosts can check, because a server shows
// only one of its keys, and then all others, so that a changed key is reported as changed.
func (k *hostKeys) algorithms(addr string) ([]string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.loadLocked(); err != nil {
		return nil, err
	}
	var algos []string
	var known []knownhosts.PublicKey
	fips140.WithoutEnforcement(func() { known = k.db.HostKeys(addr) }) // SHA-1 only hides names in the file
	for _, key := range known {
		switch {
		case key.Cert:
			// The type of the authority's key does not determine the types of the keys it signed.
			algos = append(algos, certAlgorithms...)
		case key.Type() == gossh.KeyAlgoRSA:
			algos = append(algos, gossh.KeyAlgoRSASHA512, gossh.KeyAlgoRSASHA256)
		default:
			algos = append(algos, key.Type())
		}
	}
	for _, key := range k.accepted[addr] {
		algos = append(algos, key.Type())
	}
	var unique []string
	for _, a := range append(algos, plainAlgorithms...) {
		if !slices.Contains(unique, a) {
			unique = append(unique, a)
		}
	}
	return unique, nil
}

// check accepts or rejects the key that addr showed. The host of the returned *Error is not set.
func (k *hostKeys) check(s *settings, remote net.Addr, key gossh.PublicKey) error {
	addr := s.knownAs()
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.loadLocked(); err != nil {
		return &Error{Step: StepHostKey, Err: err}
	}
	err := k.lookupLocked(addr, remote, key)
	if knownhosts.IsHostUnknown(err) && k.sizeOnDisk() != k.size {
		// Another launch may have recorded this host meanwhile.
		k.db = nil
		if err := k.loadLocked(); err != nil {
			return &Error{Step: StepHostKey, Err: err}
		}
		err = k.lookupLocked(addr, remote, key)
	}
	var revoked *xknownhosts.RevokedError
	var mismatch *xknownhosts.KeyError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &revoked):
		return &Error{Step: StepHostKey, Err: fmt.Errorf("key %s is marked as revoked in %s", describeKey(key), k.place(revoked.Revoked))}
	case errors.As(err, &mismatch) && len(mismatch.Want) > 0:
		if s.policy == Insecure {
			k.cfg.Note(s.host, fmt.Sprintf("warning: the host key of %s has changed to %s", s.hostName, describeKey(key)))
			return nil
		}
		return k.changed(addr, mismatch.Want, key)
	case errors.As(err, &mismatch):
		return k.unknownLocked(s, addr, key)
	}
	return &Error{Step: StepHostKey, Err: err} // such as a host certificate that is expired or for another name
}

func (k *hostKeys) lookupLocked(addr string, remote net.Addr, key gossh.PublicKey) error {
	var err error
	fips140.WithoutEnforcement(func() { err = k.db.HostKeyCallback()(addr, remote, key) })
	if known := k.accepted[addr]; knownhosts.IsHostUnknown(err) && len(known) > 0 {
		mismatch := &xknownhosts.KeyError{}
		for _, have := range known {
			if bytes.Equal(have.Marshal(), key.Marshal()) {
				return nil
			}
			mismatch.Want = append(mismatch.Want, xknownhosts.KnownKey{Key: have})
		}
		return mismatch
	}
	return err
}

func (k *hostKeys) changed(addr string, want []xknownhosts.KnownKey, got gossh.PublicKey) *Error {
	known := want[0]
	for _, w := range want {
		if w.Key.Type() == got.Type() {
			known = w
			break
		}
	}
	e := &Error{Step: StepHostKey}
	if known.Filename == "" {
		e.Err = fmt.Errorf("CHANGED since it was accepted a moment ago: is now %s, was %s", describeKey(got), describeKey(known.Key))
		e.Hint = "two machines answer at this address"
		return e
	}
	e.Err = fmt.Errorf("CHANGED: is now %s, but %s has %s", describeKey(got), k.place(known), describeKey(known.Key))
	e.Hint = fmt.Sprintf("if the machine was reinstalled: ssh-keygen -f %s -R %q; if not, someone may be listening in",
		k.cfg.shortPath(k.fileOf(known)), xknownhosts.Normalize(addr))
	return e
}

func (k *hostKeys) unknownLocked(s *settings, addr string, key gossh.PublicKey) error {
	if s.policy == Strict {
		return &Error{Step: StepHostKey, Err: fmt.Errorf("unknown key %s, and StrictHostKeyChecking is on", describeKey(key)),
			Hint: fmt.Sprintf("log in once by hand to check and record it: ssh -p %d %s@%s", s.port, s.user, s.hostName)}
	}
	k.accepted[addr] = append(k.accepted[addr], key)
	if len(k.files) == 0 || len(s.knownHosts) == 0 {
		return nil
	}
	file := s.knownHosts[0]
	added, err := appendKnownHost(file, addr, key, s.hashHosts)
	if err != nil {
		// As in OpenSSH: a home that cannot be written to does not prevent the login.
		k.cfg.Log.Warn("host key not recorded", "host", s.host, "err", err)
	}
	k.size += int64(added)
	if file != os.DevNull {
		k.cfg.Note(s.host, fmt.Sprintf("host key of %s accepted: %s", s.hostName, describeKey(key)))
	}
	return nil
}

func describeKey(key gossh.PublicKey) string {
	return strings.TrimPrefix(key.Type(), "ssh-") + " " + gossh.FingerprintSHA256(key)
}

func (k *hostKeys) fileOf(known xknownhosts.KnownKey) string {
	return orElse(k.original[known.Filename], known.Filename)
}

func (k *hostKeys) place(known xknownhosts.KnownKey) string {
	return fmt.Sprintf("%s:%d", k.cfg.shortPath(k.fileOf(known)), known.Line)
}

func (k *hostKeys) sizeOnDisk() int64 {
	var total int64
	for _, f := range k.files {
		if st, err := os.Stat(f); err == nil {
			total += st.Size()
		}
	}
	return total
}

// loadLocked reads the files that exist. A line that does not parse (an unknown key type, an editing mistake) is
// skipped as in OpenSSH; the parser would reject the whole file.
func (k *hostKeys) loadLocked() error {
	if k.db != nil {
		return nil
	}
	size := k.sizeOnDisk()
	var files []string
	for _, f := range k.files {
		if _, err := os.Stat(f); err == nil {
			files = append(files, f)
		} else if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR) {
			return fmt.Errorf("read known hosts: %w", err)
		}
	}
	db, err := knownhosts.NewDB(files...)
	if err != nil {
		if db, err = k.loadTolerantLocked(files); err != nil {
			return fmt.Errorf("read known hosts: %w", err)
		}
	}
	k.db, k.size = db, size
	return nil
}

// loadTolerantLocked loads copies of the files with bad lines blanked, so that line numbers stay correct.
func (k *hostKeys) loadTolerantLocked(files []string) (*knownhosts.HostKeyDB, error) {
	dir, err := os.MkdirTemp("", "gorun-known-hosts-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	k.original = map[string]string{}
	var copies []string
	for i, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		lines := bytes.Split(text, []byte("\n"))
		for n, line := range lines {
			if line = bytes.TrimSpace(line); len(line) == 0 || line[0] == '#' {
				continue
			}
			if _, _, _, _, _, err := gossh.ParseKnownHosts(line); err != nil {
				k.cfg.Log.Warn("known_hosts line ignored", "line", fmt.Sprintf("%s:%d", f, n+1), "err", err)
				lines[n] = nil
			}
		}
		name := filepath.Join(dir, fmt.Sprint(i))
		if err := os.WriteFile(name, bytes.Join(lines, []byte("\n")), 0o600); err != nil {
			return nil, err
		}
		k.original[name] = f
		copies = append(copies, name)
	}
	return knownhosts.NewDB(copies...)
}

// appendKnownHost records a key and returns how many bytes that took. It does one write under a lock, so that lines of
// several launches never mix.
func appendKnownHost(file, addr string, key gossh.PublicKey, hashed bool) (int, error) {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return 0, err
	}
	f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		return 0, fmt.Errorf("lock %s: %w", file, err)
	}
	line := knownhosts.Line([]string{addr}, key) + "\n"
	if name, rest, ok := strings.Cut(line, " "); hashed && ok {
		fips140.WithoutEnforcement(func() { line = xknownhosts.HashHostname(name) + " " + rest })
	}
	if st, err := f.Stat(); err == nil && st.Mode().IsRegular() && st.Size() > 0 {
		last := make([]byte, 1)
		if _, err := f.ReadAt(last, st.Size()-1); err == nil && last[0] != '\n' {
			line = "\n" + line
		}
	}
	return f.WriteString(line)
}
