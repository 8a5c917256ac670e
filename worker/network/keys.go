package network

import (
	"crypto/hkdf"
	"crypto/sha256"
	"fmt"
)

// Key makes the job's key for one purpose from its secret (HKDF-SHA256, RFC 5869), so that a key that leaks from one part
// opens no other.
func (n *Network) Key(purpose string) ([]byte, error) {
	key, err := hkdf.Key(sha256.New, n.job.Secret, []byte(n.job.ID), "gorun "+purpose, 32)
	if err != nil {
		return nil, fmt.Errorf("derive %s key: %w", purpose, err)
	}
	return key, nil
}
