package standing

import (
	"bytes"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"net"
	"time"
)

// ErrKey says that the other side has another key.
var ErrKey = errors.New("the other side does not hold the key of this cluster")

// minKey is how long the text of a key must be: a line of base64 or hex that holds enough chance.
const minKey = 32

// Key is what the daemons of a cluster and the launchers that may use it share.
type Key struct{ secret []byte }

// ParseKey reads the text of a key file.
func ParseKey(text []byte) (Key, error) {
	secret := bytes.TrimSpace(text)
	if len(secret) < minKey {
		return Key{}, fmt.Errorf("the key has %d characters, fewer than %d", len(secret), minKey)
	}
	return Key{bytes.Clone(secret)}, nil
}

func (k Key) derive(purpose string, size int) ([]byte, error) {
	key, err := hkdf.Key(sha256.New, k.secret, nil, "gorun cluster "+purpose, size)
	if err != nil {
		return nil, fmt.Errorf("derive %s key: %w", purpose, err)
	}
	return key, nil
}

// channel is TLS 1.3 in which both sides prove that they hold the key: a signing key is derived from it, and
// each side takes no other certificate than that key's. So nothing of ours is parsed before the proof, the
// job's secrets are encrypted on their way, and a key that leaks later opens no recorded connection.
func (k Key) channel() (*tls.Config, error) {
	seed, err := k.derive("tls", ed25519.SeedSize)
	if err != nil {
		return nil, err
	}
	private := ed25519.NewKeyFromSeed(seed)
	public := private.Public().(ed25519.PublicKey)
	// Only the key counts: names and times are not looked at.
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "gorun cluster"},
		NotBefore: time.Unix(0, 0), NotAfter: time.Unix(1<<33, 0)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	if err != nil {
		return nil, fmt.Errorf("make certificate: %w", err)
	}
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: private}},
		NextProtos:   []string{"gorun-cluster/1"},
		ClientAuth:   tls.RequireAnyClientCert,
		// There is no authority: VerifyConnection takes its place on both sides.
		InsecureSkipVerify:     true,
		SessionTicketsDisabled: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			if len(s.PeerCertificates) != 1 {
				return ErrKey
			}
			theirs, ok := s.PeerCertificates[0].PublicKey.(ed25519.PublicKey)
			if !ok || !public.Equal(theirs) {
				return ErrKey
			}
			return nil
		},
	}, nil
}

// keepAlive finds a peer that fell silent, but bears the pause of a VM that is being moved.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 15 * time.Second, Count: 6}
