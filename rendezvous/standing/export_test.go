package standing

import (
	"errors"
	"slices"
)

// Vanish ends a launcher's side as a kill does.
func Vanish(s *Stream) {
	s.cancel()
	s.Fail(errors.New("killed"))
	s.wg.Wait()
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
