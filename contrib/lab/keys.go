//go:build linux

package lab

import (
	"crypto/ed25519"
	"encoding/pem"
	"fmt"

	"golang.org/x/crypto/ssh"
)

// key is an ssh key in the two forms that files hold.
type key struct {
	private []byte // PEM
	public  []byte // one line, as in authorized_keys
}

// newKey makes a key that is used in one lab only.
func newKey() (key, error) {
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		return key{}, fmt.Errorf("generate key: %w", err)
	}
	block, err := ssh.MarshalPrivateKey(private, "gorun lab")
	if err != nil {
		return key{}, fmt.Errorf("encode key: %w", err)
	}
	signer, err := ssh.NewSignerFromKey(private)
	if err != nil {
		return key{}, fmt.Errorf("encode public key: %w", err)
	}
	return key{pem.EncodeToMemory(block), ssh.MarshalAuthorizedKey(signer.PublicKey())}, nil
}
