package standing

import (
	"errors"
	"slices"
	"time"
)

// Taking has a daemon wait for so long only until a launcher takes the slots that it waited for.
func (c Config) Taking(d time.Duration) Config {
	c.takeTimeout = d
	return c
}

// Vanish ends a launcher's side as a kill does.
func Vanish(s *DaemonStream) {
	s.cancel()
	s.Fail(errors.New("killed"))
	s.wg.Wait()
}

// GossipKey is the key of the cluster's gossip.
func (k Key) GossipKey() []byte {
	keys, err := k.derive("gossip", 32)
	if err != nil {
		panic(err)
	}
	return keys[0]
}

// By has a host be reached at another address from now on.
func (l *Lease) By(host, addr string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.shares = slices.Clone(l.shares)
	for i := range l.shares {
		if l.shares[i].Host == host {
			l.shares[i].Addr = addr
		}
	}
}
