package gossip

import (
	"crypto/fips140"
	"errors"
)

// allowed returns an error where memberlist could not encrypt: FIPS 140-only mode refuses AES-GCM with nonces that are
// made outside of Go's module, even random ones. GODEBUG=fips140=on does not.
func allowed() error {
	if fips140.Enforced() {
		return errors.New("FIPS 140-only mode (GODEBUG=fips140=only) refuses the encryption of gossip; fips140=on allows it")
	}
	return nil
}
