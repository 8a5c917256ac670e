package standing

import (
	"bytes"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"gorun/rendezvous/keytls"
)

// ErrKey means that the other side has another key.
var ErrKey = errors.New("the other side does not hold the key of this cluster")

// minKey is the least length of a key's text: a line of base64 or hex with enough entropy.
const minKey = 32

// Key is the secret that the daemons of a cluster share with the launchers that may use it.
type Key struct {
	secret  []byte
	channel func() (*tls.Config, error) // made once: a launcher opens one to every host
}

// ParseKey reads the text of a key file.
func ParseKey(text []byte) (Key, error) {
	secret := bytes.TrimSpace(text)
	if len(secret) < minKey {
		return Key{}, fmt.Errorf("the key has %d characters, fewer than %d", len(secret), minKey)
	}
	k := Key{secret: bytes.Clone(secret)}
	k.channel = sync.OnceValues(k.newChannel)
	return k, nil
}

// Fingerprint names the key, and reveals nothing of it.
func (k Key) Fingerprint() string {
	b, err := k.derive("fingerprint", 8)
	if err != nil {
		return ""
	}
	return hex.EncodeToString(b)
}

func (k Key) derive(purpose string, size int) ([]byte, error) {
	key, err := hkdf.Key(sha256.New, k.secret, nil, "gorun cluster "+purpose, size)
	if err != nil {
		return nil, fmt.Errorf("derive %s key: %w", purpose, err)
	}
	return key, nil
}

// newChannel configures TLS 1.3 in which both sides prove that they hold the key; it encrypts the job's secrets.
func (k Key) newChannel() (*tls.Config, error) {
	seed, err := k.derive("tls", keytls.SeedSize)
	if err != nil {
		return nil, err
	}
	return keytls.New(seed, "gorun-cluster/1", ErrKey)
}

// keepAlive detects a silent peer, but tolerates the pause of a VM that is being moved.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 15 * time.Second, Count: 6}

// queueKeepAlive is for connections to the daemon that holds the queue. The other daemons give it up after the same
// silence, and another one takes over the queue.
var queueKeepAlive = net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 4}
