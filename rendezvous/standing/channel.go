package standing

import (
	"bytes"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"gorun/rendezvous/keytls"
)

// ErrKey means that the other side has another key.
var ErrKey = errors.New("the other side does not hold the key of this cluster")

const (
	// minKey is the least length of a key in bytes, and minValues how many different ones are in it: of 32 random bytes,
	// fewer than 16 differ once in 10^17 keys.
	minKey, minValues = 32, 16
)

// Key is the secret that the daemons of a cluster share with the launchers that may use it. While it is being replaced it
// is two: gossip is sent with the first, and both are accepted.
type Key struct {
	secrets [][]byte
	channel func() (*keytls.Ring, error) // made once: a launcher opens one to every host
}

// ParseKey reads the text of a key file: a line with the key, and perhaps another line with another one.
func ParseKey(text []byte) (Key, error) {
	var k Key
	for line := range bytes.Lines(text) {
		secret := bytes.TrimSpace(line)
		if len(secret) == 0 {
			continue
		}
		if err := checkKey(string(secret)); err != nil {
			return Key{}, err
		}
		k.secrets = append(k.secrets, bytes.Clone(secret))
	}
	if n := len(k.secrets); n == 0 || n > keytls.MaxKeys {
		return Key{}, fmt.Errorf("%d keys, want one, or two while it is replaced", n)
	}
	k.channel = sync.OnceValues(k.newChannel)
	return k, nil
}

// checkKey refuses a key that may be guessed. The key itself is its text.
func checkKey(text string) error {
	key, err := hex.DecodeString(text)
	if err != nil {
		key, err = base64.RawURLEncoding.DecodeString(strings.NewReplacer("+", "-", "/", "_", "=", "").Replace(text))
	}
	values := map[byte]bool{}
	for _, b := range key {
		values[b] = true
	}
	switch {
	case err != nil:
		return errors.New("a key that is neither in base64 nor in hexadecimal digits may be guessed")
	case len(key) < minKey:
		return fmt.Errorf("a key of %d bytes may be guessed, it needs %d", len(key), minKey)
	case len(values) < minValues:
		return fmt.Errorf("a key of %d bytes of which %d differ is not random, and may be guessed", len(key), len(values))
	}
	return nil
}

// Text returns what ParseKey reads.
func (k Key) Text() []byte { return bytes.Join(k.secrets, []byte("\n")) }

// Fingerprints names the keys in their order, and reveals nothing of them.
func (k Key) Fingerprints() []string {
	derived, err := k.derive("fingerprint", 8)
	if err != nil {
		return make([]string, len(k.secrets))
	}
	var names []string
	for _, b := range derived {
		names = append(names, hex.EncodeToString(b))
	}
	return names
}

// derive derives a key from each secret.
func (k Key) derive(purpose string, size int) (derived [][]byte, err error) {
	for _, secret := range k.secrets {
		key, err := hkdf.Key(sha256.New, secret, nil, "gorun cluster "+purpose, size)
		if err != nil {
			return nil, fmt.Errorf("derive %s key: %w", purpose, err)
		}
		derived = append(derived, key)
	}
	return derived, nil
}

// newChannel makes what both sides of a connection prove that they hold the key with; TLS encrypts the job's secrets.
func (k Key) newChannel() (*keytls.Ring, error) {
	keys, err := k.derive("channel", sha256.Size)
	if err != nil {
		return nil, err
	}
	return keytls.NewRing(keys, "gorun-cluster/2", ErrKey)
}

// keepAlive detects a silent peer, but tolerates the pause of a VM that is being moved.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 15 * time.Second, Count: 6}

// queueKeepAlive is for connections to the daemon that holds the queue. The other daemons give it up after the same
// silence, and another one takes over the queue.
var queueKeepAlive = net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 4}
