package ssh

import (
	"cmp"
	"crypto/fips140"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	gossh "golang.org/x/crypto/ssh"
	xknownhosts "golang.org/x/crypto/ssh/knownhosts"
	"golang.org/x/sys/unix"
)

// hostKeys is one list of known_hosts files, shared by all hosts that use the same list. The files are read once; keys
// accepted since are kept beside them, so that 1,000 new hosts do not cause 1,000 reads.
type hostKeys struct {
	files []string
	cfg   Config

	mu     sync.Mutex
	lines  []knownLine
	loaded bool
	size   int64 // of all files together when last read or appended to
}

func newHostKeys(cfg Config, files []string) *hostKeys { return &hostKeys{files: files, cfg: cfg} }

// algorithms returns the host key algorithms to request: first the ones known_hosts can check, because a server shows
// only one of its keys, and then all others, so that a changed key is reported as changed. As in OpenSSH, an order that
// ssh_config sets stays.
func (k *hostKeys) algorithms(s *settings) []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.loadLocked()
	authority, types := false, map[string]bool{}
	for _, line := range k.lines {
		if line.is(s.knownAs()) {
			authority = authority || line.marker == "@cert-authority"
			t, _ := plainType(line.text[0])
			types[t] = types[t] || line.marker == ""
		}
	}
	var first, last []string
	for _, a := range s.hostKeys {
		if t, cert := plainType(a); cert && authority || types[t] || s.values.says(inOrder) {
			first = append(first, a)
		} else {
			last = append(last, a)
		}
	}
	return append(first, last...)
}

// check accepts or rejects the key that a host showed, as OpenSSH does. The host of the returned *Error is not set.
func (k *hostKeys) check(s *settings, remote net.Addr, key gossh.PublicKey) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	refuse := func(format string, args ...any) *Error {
		return &Error{Step: StepHostKey, Err: fmt.Errorf(format, args...)}
	}
	k.loadLocked()
	ip := addrOf(remote)
	local := ip != nil && ip.(*net.TCPAddr).IP.IsLoopback()
	if shortRSA(key, s.minRSA) {
		return refuse("key %s has fewer bits than RequiredRSASize %d", describeKey(key), s.minRSA)
	}
	if local && s.values.says("nohostauthenticationforlocalhost") && s.values.first("hostkeyalias") == "" {
		return nil
	}
	v, line := k.judgeLocked(s, key)
	var why error
	if cert, ok := key.(*gossh.Certificate); ok && v != isRevoked {
		if v == isKnown {
			if why = s.checkCert(cert); why == nil {
				return nil
			}
		}
		key = cert.Key // it may be known by itself
		v, line = k.judgeLocked(s, key)
	}
	if v == isUnknown && k.sizeOnDisk() != k.size {
		// Another launch may have recorded this host meanwhile.
		k.loaded = false
		k.loadLocked()
		v, line = k.judgeLocked(s, key)
	}
	if s.values.says("checkhostip") && ip != nil && !local && v != isChanged && !s.anyKey {
		if of, at := judge(k.lines, knownName(ip.(*net.TCPAddr).IP.String(), s.port), key); of == isChanged {
			v, line = of, at
		}
	}
	switch {
	case v == isKnown:
		return nil
	case v != isUnknown && s.anyKey:
		k.cfg.Note(s.host, fmt.Sprintf("warning: the host key of %s has changed to %s", s.hostName, describeKey(key)))
		return nil
	case v == isRevoked:
		return refuse("key %s is marked as revoked in %s", describeKey(key), k.place(line))
	case v == isChanged:
		return k.changed(s.knownAs(), line, key)
	case why != nil && s.strict:
		return refuse("%w", why) // such as a certificate that is expired or for another name
	}
	return k.unknownLocked(s, key)
}

// judgeLocked looks a key up under the host's name and port, and then, for a key that is known, under its name alone.
func (k *hostKeys) judgeLocked(s *settings, key gossh.PublicKey) (verdict, knownLine) {
	v, line := judge(k.lines, s.knownAs(), key)
	if v == isUnknown && s.values.first("hostkeyalias") == "" {
		if v, line := judge(k.lines, s.hostName, key); v == isKnown {
			return v, line
		}
	}
	return v, line
}

// checkCert checks a host certificate of an authority that known_hosts has.
func (s *settings) checkCert(cert *gossh.Certificate) error {
	switch {
	case cert.CertType != gossh.HostCert:
		return errors.New("the host shows the certificate of a user")
	case s.authorities != nil && !slices.Contains(s.authorities, cert.Signature.Format):
		return fmt.Errorf("the host's certificate is signed by %s, which CASignatureAlgorithms of ssh_config does not have", cert.Signature.Format)
	}
	return new(gossh.CertChecker).CheckCert(cmp.Or(s.values.first("hostkeyalias"), s.hostName), cert)
}

func (k *hostKeys) changed(name string, known knownLine, got gossh.PublicKey) *Error {
	e := &Error{Step: StepHostKey}
	if known.file == "" {
		e.Err = fmt.Errorf("CHANGED since it was accepted a moment ago: is now %s, was %s", describeKey(got), describeKey(known.key()))
		e.Hint = "two machines answer at this address"
		return e
	}
	e.Err = fmt.Errorf("CHANGED: is now %s, but %s has %s", describeKey(got), k.place(known), describeKey(known.key()))
	if slices.Contains(k.files, known.file) {
		e.Hint = fmt.Sprintf("if the machine was reinstalled: ssh-keygen -f %s -R %q; if not, someone may be listening in",
			k.cfg.shortPath(known.file), name)
	}
	return e
}

func (k *hostKeys) unknownLocked(s *settings, key gossh.PublicKey) error {
	if s.strict {
		return &Error{Step: StepHostKey, Err: fmt.Errorf("unknown key %s, and StrictHostKeyChecking is on", describeKey(key)),
			Hint: fmt.Sprintf("log in once by hand to check and record it: ssh -p %d %s@%s", s.port, s.user, s.hostName)}
	}
	if s.record == "" {
		return &Error{Step: StepHostKey, Err: fmt.Errorf("unknown key %s, and UserKnownHostsFile none has no place for it", describeKey(key))}
	}
	text := [2]string{key.Type(), base64.StdEncoding.EncodeToString(key.Marshal())}
	k.lines = append(k.lines, knownLine{names: s.knownAs(), text: text})
	added, err := appendKnownHost(s.record, s.knownAs(), strings.Join(text[:], " "), s.hashHosts)
	if err != nil {
		// As in OpenSSH: a home that cannot be written to does not prevent the login.
		k.cfg.Log.Warn("host key not recorded", "host", s.host, "err", err)
	}
	k.size += int64(added)
	if s.record != os.DevNull {
		k.cfg.Note(s.host, fmt.Sprintf("host key of %s accepted: %s", s.hostName, describeKey(key)))
	}
	return nil
}

func describeKey(key gossh.PublicKey) string {
	return strings.TrimPrefix(key.Type(), "ssh-") + " " + fingerprint(key)
}

// fingerprint is that of the key which a certificate has, as in OpenSSH.
func fingerprint(key gossh.PublicKey) string {
	if cert, ok := key.(*gossh.Certificate); ok {
		key = cert.Key
	}
	return gossh.FingerprintSHA256(key)
}

func (k *hostKeys) place(known knownLine) string {
	return fmt.Sprintf("%s:%d", k.cfg.shortPath(known.file), known.number)
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

// loadLocked reads the files. As OpenSSH, it skips those that cannot be read.
func (k *hostKeys) loadLocked() {
	if k.loaded {
		return
	}
	k.size = k.sizeOnDisk()
	lines := slices.DeleteFunc(k.lines, func(line knownLine) bool { return line.file != "" })
	for _, f := range k.files {
		text, _ := readText(f)
		lines = append(lines, knownLines(f, text)...)
	}
	k.lines, k.loaded = lines, true
}

// appendKnownHost records a key and returns how many bytes that took. It does one write under a lock, so that lines of
// several launches never mix.
func appendKnownHost(file, name, key string, hashed bool) (int, error) {
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
	if hashed {
		fips140.WithoutEnforcement(func() { name = xknownhosts.HashHostname(name) }) // SHA-1 only hides it in the file
	}
	line := name + " " + key + "\n"
	if st, err := f.Stat(); err == nil && st.Mode().IsRegular() && st.Size() > 0 {
		last := make([]byte, 1)
		if _, err := f.ReadAt(last, st.Size()-1); err == nil && last[0] != '\n' {
			line = "\n" + line
		}
	}
	return f.WriteString(line)
}
