package network

import (
	"crypto/hkdf"
	"crypto/sha256"
	"fmt"
)

// Key returns the job's key for one purpose, which this package does not name itself.
func (n *Network) Key(purpose string) ([]byte, error) { return derive(n.job.Secret, n.job.ID, purpose) }

// derive makes the key for one purpose from the job's secret (HKDF-SHA256, RFC 5869), so that a key
// that leaks from one part opens no other.
func derive(secret []byte, job, purpose string) ([]byte, error) {
	key, err := hkdf.Key(sha256.New, secret, []byte(job), "gorun "+purpose, 32)
	if err != nil {
		return nil, fmt.Errorf("derive %s key: %w", purpose, err)
	}
	return key, nil
}
