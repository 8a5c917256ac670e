package ssh

import (
	"context"
	"errors"
	"testing"
)

const someSHA, someDir = "5a", "0123456789abcdef"

func mustGo(t *testing.T, s *spread) (delivery, func(bool)) {
	t.Helper()
	w, leave, err := s.acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return w, leave
}

// busy reports whether another host would have to wait.
func busy(s *spread) bool {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	s.mu.Lock()
	waiting := len(s.queue)
	s.mu.Unlock()
	if _, leave, err := s.acquire(ctx); err == nil {
		leave(true)
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	free := s.uploads < seeds
	for _, c := range s.sources {
		free = free || !c.broken && c.inUse < fanOut
	}
	return !free && len(s.queue) == waiting
}

// The launcher sends to a few at once; the others take what comes first, and a host that cannot be reached is not
// asked again.
func TestSpread(t *testing.T) {
	s := newSpread()
	if w, _ := mustGo(t, s); w.from != nil || busy(s) {
		t.Error("without a relay somebody has to wait")
	}
	s.relay = true
	var leaves []func(bool)
	for range seeds {
		w, leave := mustGo(t, s)
		if w.from != nil {
			t.Error("a source before there is one")
		}
		leaves = append(leaves, leave)
	}
	if !busy(s) {
		t.Errorf("more than %d uploads at once", seeds)
	}
	taken := make(chan delivery)
	go func() {
		w, leave := mustGo(t, s)
		taken <- w
		leave(false)
		taken <- w
	}()
	for waiting := 0; waiting == 0; {
		s.mu.Lock()
		waiting = len(s.queue)
		s.mu.Unlock()
	}
	s.offer("a:1")
	if w := <-taken; w.from == nil || w.from.address != "a:1" {
		t.Errorf("who waited was given %v", w)
	}
	<-taken
	if !busy(s) {
		t.Error("a source that failed is used again")
	}
	s.offer("b:1")
	for range fanOut {
		w, leave := mustGo(t, s)
		if w.from == nil || w.from.address != "b:1" {
			t.Errorf("given %v", w)
		}
		leaves = append(leaves, leave)
	}
	if !busy(s) {
		t.Errorf("more than %d hosts at one source", fanOut)
	}
	for _, leave := range leaves {
		leave(true)
	}
	if s.uploads != 0 || s.sources[1].inUse != 0 || busy(s) {
		t.Errorf("%d uploads and %d takers at the end", s.uploads, s.sources[1].inUse)
	}
}

// Of logins that lead to one directory one fills it; the others find it filled, or each fill it if that failed.
func TestSettle(t *testing.T) {
	for _, ok := range []bool{true, false} {
		s := newSpread()
		there, done, err := s.claim(t.Context(), someSHA, someDir)
		if there || err != nil {
			t.Fatal(there, err)
		}
		found := make(chan bool)
		for range 3 {
			go func() {
				there, done, _ := s.claim(t.Context(), someSHA, someDir)
				done(true)
				found <- there
			}()
		}
		for _, other := range [][2]string{{someSHA, "fedcba9876543210"}, {"5b", someDir}, {someSHA, ""}, {someSHA, "$(id)"}} {
			if there, _, err := s.claim(t.Context(), other[0], other[1]); there || err != nil {
				t.Errorf("%q: %v %v", other, there, err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, _, err := s.claim(ctx, someSHA, someDir); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}
		done(ok)
		for range 3 {
			if got := <-found; got != ok {
				t.Errorf("who waited heard %v, want %v", got, ok)
			}
		}
	}
}
