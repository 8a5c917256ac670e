package spread

import (
	"context"
	"testing"
	"testing/synctest"

	"gorun/contrib/must"
)

func take(t *testing.T, s *Spread) (from string, leave func(bool)) {
	t.Helper()
	from, leave, err := s.Acquire(t.Context())
	must.Do(t, err)
	return from, leave
}

// busy reports whether another host would have to wait.
func busy(s *Spread) bool {
	ctx, cancel := context.WithCancel(context.Background())
	waits := true
	go func() {
		if _, leave, err := s.Acquire(ctx); err == nil {
			waits = false
			leave(true)
		}
	}()
	synctest.Wait()
	cancel()
	synctest.Wait()
	return waits
}

// The launcher serves few at once; the others take what comes first, and a host that cannot be reached is not asked again.
func TestSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const seeds = 4
		s := &Spread{Seeds: seeds}
		var leaves []func(bool)
		for range seeds {
			from, leave := take(t, s)
			if from != "" {
				t.Error("a source before there is one")
			}
			leaves = append(leaves, leave)
		}
		if !busy(s) {
			t.Errorf("more than %d uploads at once", seeds)
		}
		taken := make(chan string, 1)
		go func() {
			from, leave := take(t, s)
			leave(false)
			taken <- from
		}()
		synctest.Wait()
		s.Offer("a:1")
		if from := <-taken; from != "a:1" {
			t.Errorf("who waited was given %q", from)
		}
		if !busy(s) {
			t.Error("a source that failed is used again")
		}
		s.Offer("b:1")
		for range FanOut {
			from, leave := take(t, s)
			if from != "b:1" {
				t.Errorf("given %q", from)
			}
			leaves = append(leaves, leave)
		}
		if !busy(s) {
			t.Errorf("more than %d hosts at one source", FanOut)
		}
		for _, leave := range leaves {
			leave(true)
		}
		if s.uploads != 0 || s.sources[1].inUse != 0 || busy(s) {
			t.Errorf("%d uploads and %d takers at the end", s.uploads, s.sources[1].inUse)
		}
	})
}

// TestSparing: with two uploads at once, eight hosts cost the launcher two; more only if those fail.
func TestSparing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Spread{Seeds: 2}
		_, first := take(t, s)
		take(t, s)
		s.Offer("a:1")
		first(true)
		one, failed := take(t, s)
		two, _ := take(t, s)
		if one != "a:1" || two != "a:1" || !busy(s) {
			t.Errorf("given %q and %q, busy %v", one, two, busy(s))
		}
		failed(false)
		if from, _ := take(t, s); from != "" {
			t.Errorf("the only source failed, given %q", from)
		}
	})
}
