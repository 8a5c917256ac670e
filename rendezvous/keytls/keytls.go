// Package keytls configures TLS 1.3 for peers that share a key, without certificates from an authority. Both sides
// derive the same signing key from the shared one and accept no other certificate. So nothing is parsed before both
// sides have proven that they hold the key, and a key that leaks later does not reveal recorded traffic.
//
// It opens no connection and starts no goroutine.
package keytls

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"time"
)

// SeedSize is the number of bytes of key material that New needs.
const SeedSize = ed25519.SeedSize

// New returns a configuration for both sides. seed must be derived for this purpose alone; protocol names the protocol
// inside TLS; refused is the error of a handshake with a peer that has another key.
func New(seed []byte, protocol string, refused error) (*tls.Config, error) {
	if len(seed) != SeedSize {
		return nil, fmt.Errorf("make TLS configuration: seed of %d bytes, want %d", len(seed), SeedSize)
	}
	private := ed25519.NewKeyFromSeed(seed)
	public := private.Public().(ed25519.PublicKey)
	// Only the key counts: names and times are not checked.
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: protocol},
		NotBefore: time.Unix(0, 0), NotAfter: time.Unix(1<<33, 0)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	if err != nil {
		return nil, fmt.Errorf("make certificate: %w", err)
	}
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: private}},
		NextProtos:   []string{protocol},
		ClientAuth:   tls.RequireAnyClientCert,
		// There is no authority: VerifyConnection verifies the peer on both sides.
		InsecureSkipVerify:     true,
		SessionTicketsDisabled: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			if len(s.PeerCertificates) != 1 {
				return refused
			}
			theirs, ok := s.PeerCertificates[0].PublicKey.(ed25519.PublicKey)
			if !ok || !public.Equal(theirs) {
				return refused
			}
			return nil
		},
	}, nil
}
