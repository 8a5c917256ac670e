package ssh

import (
	"context"
	"regexp"
	"sync"
)

// places are the directories that logins fill with the binary. Logins that lead to one directory, such as those to several
// addresses of a machine or to hosts with a shared home, get it once: the others wait and look again.
type places struct {
	mu    sync.Mutex
	known map[string]*place // by the hash of the binary and the name of the directory
}

// place is a directory that some login is filling.
type place struct {
	done chan struct{}
	ok   bool // the binary is there; valid once done is closed
}

var placeName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[0-9a-f]{16}$`) })

// claim waits for the login that is filling the same directory. It returns true if the binary is there now; otherwise
// the caller must put it there and call done once with the result. An empty name is never shared.
func (s *places) claim(ctx context.Context, sha, name string) (there bool, done func(ok bool), err error) {
	if !placeName().MatchString(name) {
		return false, func(bool) {}, nil
	}
	s.mu.Lock()
	p := s.known[sha+name]
	if p == nil {
		p = &place{done: make(chan struct{})}
		s.known[sha+name] = p
		s.mu.Unlock()
		return false, func(ok bool) { p.ok = ok; close(p.done) }, nil
	}
	s.mu.Unlock()
	select {
	case <-p.done:
		return p.ok, func(bool) {}, nil
	case <-ctx.Done():
		return false, nil, context.Cause(ctx)
	}
}
