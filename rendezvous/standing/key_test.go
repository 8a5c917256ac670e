package standing

import (
	"fmt"
	"strings"
	"testing"

	"gorun/contrib/must"
	"gorun/rendezvous/keytls"
)

const aKey = "bx+QCnMZ7vYJ0hL9rTq3w5uXk2aVdE8sGiPzR1yFoMc="

// TestKeyMustBeStrong: a key that somebody may guess is refused, and so is a file with more than two.
func TestKeyMustBeStrong(t *testing.T) {
	const digits = "6f1f900a73197ef609d212fdad3ab7c39b97936695744f2c1a23f3475c85a0c7"
	for text, want := range map[string]string{
		aKey: "", aKey + "\n": "", strings.TrimRight(aKey, "="): "", strings.ReplaceAll(aKey, "+", "-"): "",
		digits: "", strings.ToUpper(digits): "", "\n " + aKey + "\r\n\n" + digits + "\n": "",
		"": "0 keys", "\n": "0 keys", strings.Repeat(aKey+"\n", 3): "3 keys",
		"correct horse battery staple correct horse": "neither in base64 nor in hexadecimal digits",
		"Tr0ub4dor&3Tr0ub4dor&3Tr0ub4dor&3Tr0ub4dor": "neither in base64 nor in hexadecimal digits",
		aKey[:42]:                             "31 bytes may be guessed",
		aKey + "\n" + aKey[:20]:               "15 bytes may be guessed",
		digits[:62]:                           "31 bytes may be guessed",
		strings.Repeat("k", 44):               "not random",
		strings.Repeat("0123456789abcdef", 4): "not random",
		strings.Repeat("0", 64):               "not random",
	} {
		key, err := ParseKey([]byte(text))
		if fmt.Sprint(err) == "<nil>" != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
		if err != nil && len(key.secrets) > 0 {
			t.Errorf("%q: refused, and yet a key", text)
		}
	}
}

// ofKey returns a client with a key, and the channel of daemons that have it.
func ofKey(t *testing.T) (Client, *keytls.Ring) {
	t.Helper()
	key, err := ParseKey([]byte(aKey))
	must.Do(t, err)
	channel, err := key.channel()
	must.Do(t, err)
	return Client{Key: key}, channel
}
