package ssh

import (
	"context"
	"errors"
	"testing"
)

const someSHA, someDir = "5a", "0123456789abcdef"

// Of logins that lead to one directory one fills it; the others find it filled, or each fill it if that failed.
func TestSettle(t *testing.T) {
	for _, ok := range []bool{true, false} {
		s := &places{known: map[string]*place{}}
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
