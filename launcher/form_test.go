package launcher_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"gorun/launcher"
	"gorun/launcher/failure"
	"gorun/rendezvous/wire"
)

// TestWorldIsFormedLater: ranks are started first, and the world is formed once, when a rank asks or some time later.
func TestWorldIsFormedLater(t *testing.T) {
	for name, asks := range map[string]bool{"a rank asks": true, "none asks": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var formed, later atomic.Int32
			s := &script{t: t, daemons: both(func(c *conversation) {
				c.later = func() {
					later.Add(1)
					if asks {
						c.say(&wire.Wanted{})
						c.say(&wire.Wanted{})
					}
				}
				if !c.begin() {
					return
				}
				if form, ok := c.hear().(*wire.Form); !ok || form.Epoch != 1 {
					t.Errorf("heard %+v, want Form", form)
					return
				}
				formed.Add(1)
				c.enter()
				for _, r := range c.at.Ranks {
					c.say(&wire.Exited{Process: r.Process})
				}
				c.end()
			})}
			if _, _, err := start(t, t.Context(), s, func(s *launcher.Spec) {
				s.Verbose = false
				s.FormAfter(map[bool]time.Duration{true: time.Hour, false: time.Millisecond}[asks])
			}); err != nil {
				t.Fatal(err)
			}
			if formed.Load() != 2 || later.Load() != 2 {
				t.Errorf("%d of 2 hosts were told to form a world, %d of 2 to do so later", formed.Load(), later.Load())
			}
		})
	}
}

// TestNobodyAsksForWorld: a job whose ranks ask for nothing ends without a world.
func TestNobodyAsksForWorld(t *testing.T) {
	s := &script{t: t, daemons: both(func(c *conversation) {
		if !c.begin() {
			return
		}
		for _, r := range c.at.Ranks {
			c.say(&wire.Exited{Process: r.Process})
		}
		if stop, ok := c.hear().(*wire.Stop); !ok {
			t.Errorf("heard %T, want Stop", stop)
		}
		c.say(&wire.Done{})
	})}
	if _, _, err := start(t, t.Context(), s, func(s *launcher.Spec) { s.Verbose = false; s.FormAfter(time.Hour) }); err != nil {
		t.Fatal(err)
	}
}

// TestWorldThatDoesNotForm: hosts that do not find each other are named, although their ranks run.
func TestWorldThatDoesNotForm(t *testing.T) {
	s := &script{t: t, daemons: both(func(c *conversation) {
		if c.begin() {
			c.end()
		}
	})}
	_, _, err := start(t, t.Context(), s, func(s *launcher.Spec) {
		s.Verbose, s.StartTimeout = false, 2*time.Second
		s.FormAfter(time.Millisecond)
	})
	var many *failure.HostErrors
	if !errors.As(err, &many) || len(many.Failed) != 2 || many.Failed[0].Step != "join" {
		t.Fatalf("verdict %v", err)
	}
}

// TestHostLostWhileWorldIsFormed: with a host of which ranks run the job is lost: no one waits for what becomes of the world.
func TestHostLostWhileWorldIsFormed(t *testing.T) {
	formed := func(c *conversation) bool {
		if !c.begin() {
			return false
		}
		_, ok := c.hear().(*wire.Form)
		return ok
	}
	s := &script{t: t, daemons: map[string]func(*conversation){
		"a": func(c *conversation) { formed(c) },
		"b": func(c *conversation) {
			if formed(c) {
				c.end()
			}
		},
	}}
	began := time.Now()
	_, _, err := start(t, t.Context(), s, func(s *launcher.Spec) { s.Verbose = false; s.FormAfter(time.Millisecond) })
	var one *failure.HostError
	if !errors.As(err, &one) || one.Host != "a" || one.Step != "run" {
		t.Fatalf("verdict %v", err)
	}
	if took := time.Since(began); took > 4*time.Second { // a start waits for 5 s
		t.Errorf("the job ended after %v", took)
	}
}
