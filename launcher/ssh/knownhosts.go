package ssh

import (
	"bytes"
	"crypto/fips140"
	"crypto/hmac"
	"crypto/sha1" // as OpenSSH hashes the names
	"encoding/base64"
	"slices"
	"strings"

	gossh "golang.org/x/crypto/ssh"
)

// knownLine is a line of a known_hosts file. Its key is parsed when a host asks for it.
type knownLine struct {
	file   string // "" for a key accepted a moment ago
	number int
	marker string
	names  string
	text   [2]string // type and base64
}

// knownLines parses known_hosts. It leaves out what OpenSSH leaves out.
func knownLines(file string, text []byte) (lines []knownLine) {
	number := 0
	for line := range strings.Lines(string(text)) {
		number++
		k := knownLine{file: file, number: number}
		line, _, _ = strings.Cut(strings.TrimLeft(line, " \t"), "\x00") // where OpenSSH's strings end
		if strings.HasPrefix(line, "@") {
			blank := "\t"
			if strings.Contains(line, " ") { // as OpenSSH, which takes a tab only if there is no space
				blank = " "
			}
			k.marker, line, _ = strings.Cut(line, blank)
		}
		words := strings.FieldsFunc(line, func(r rune) bool { return strings.ContainsRune(" \t\r\n", r) })
		if len(words) >= 3 && words[0][0] != '#' && slices.Contains([]string{"", "@cert-authority", "@revoked"}, k.marker) {
			k.names, k.text = words[0], [2]string{words[1], words[2]}
			lines = append(lines, k)
		}
	}
	return lines
}

// is reports whether the line is about a name, which is in lower case.
func (k knownLine) is(name string) bool {
	hashed, ok := strings.CutPrefix(k.names, "|1|")
	if !ok {
		return matchesList(strings.Split(strings.ToLower(k.names), ","), name)
	}
	salt, sum, _ := strings.Cut(hashed, "|")
	key, err := base64.StdEncoding.DecodeString(salt)
	want, err2 := base64.StdEncoding.DecodeString(sum)
	var got []byte
	fips140.WithoutEnforcement(func() { // SHA-1 only hides names in the file
		mac := hmac.New(sha1.New, key)
		mac.Write([]byte(name))
		got = mac.Sum(nil)
	})
	return err == nil && err2 == nil && hmac.Equal(got, want)
}

// key returns nil for a key that does not parse.
func (k knownLine) key() gossh.PublicKey {
	blob, err := base64.StdEncoding.DecodeString(strings.NewReplacer("\v", "", "\f", "").Replace(k.text[1]))
	if err != nil {
		return nil
	}
	key, err := gossh.ParsePublicKey(blob)
	if err != nil {
		return nil
	}
	if t, cert := plainType(k.text[0]); !cert && key.Type() != t || cert && key.Type() != k.text[0] {
		return nil
	}
	return key
}

func equalKeys(a, b gossh.PublicKey) bool {
	return a != nil && b != nil && bytes.Equal(a.Marshal(), b.Marshal())
}

// revokes reports whether a revoked key is the key, the one that it certifies, or its authority.
func revokes(revoked, key gossh.PublicKey) bool {
	if bare, ok := revoked.(*gossh.Certificate); ok {
		revoked = bare.Key
	}
	cert, certified := key.(*gossh.Certificate)
	return equalKeys(revoked, key) || certified && (equalKeys(revoked, cert.Key) || equalKeys(revoked, cert.SignatureKey))
}

// verdict is what known_hosts says about the key of a host.
type verdict int

const (
	isUnknown verdict = iota
	isKnown
	isChanged
	isRevoked
)

// judge looks for a key, or the authority of a certificate, under a name. The line is the reason; of several changed
// keys it has one of the same type.
func judge(lines []knownLine, name string, key gossh.PublicKey) (v verdict, why knownLine) {
	cert, certified := key.(*gossh.Certificate)
	for _, line := range lines {
		if !line.is(name) {
			continue
		}
		have := line.key()
		switch {
		case have == nil:
		case line.marker == "@revoked":
			if revokes(have, key) {
				return isRevoked, line
			}
		case v == isKnown || certified != (line.marker != ""): // a line further down may revoke it
		case certified && equalKeys(have, cert.SignatureKey), !certified && equalKeys(have, key):
			v, why = isKnown, line
		case !certified && (v == isUnknown || have.Type() == key.Type()):
			v, why = isChanged, line
		}
	}
	return v, why
}
