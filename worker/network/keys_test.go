package network

import (
	"bytes"
	"testing"

	"gorun/contrib/must"
	"gorun/rendezvous/wire"
)

// TestKeys: every purpose, job and secret has a key of its own, and the same one on every host.
func TestKeys(t *testing.T) {
	secret := bytes.Repeat([]byte{1}, 32)
	seen := map[string]bool{}
	for _, in := range []struct {
		secret       []byte
		job, purpose string
	}{{secret, "job", "gossip"}, {secret, "job", "link"}, {secret, "other", "link"}, {bytes.Repeat([]byte{2}, 32), "job", "link"}} {
		n := &Network{job: &wire.Job{Secret: in.secret, ID: in.job}}
		a, err := n.Key(in.purpose)
		must.Do(t, err)
		b, err := n.Key(in.purpose)
		if err != nil || !bytes.Equal(a, b) || len(a) != 32 || seen[string(a)] {
			t.Errorf("%v: keys %x and %x, error %v", in, a, b, err)
		}
		seen[string(a)] = true
	}
}
