package launcher_test

import (
	"sync/atomic"
	"testing"
	"time"

	"gorun/launcher"
	"gorun/rendezvous/wire"
)

// TestWorldIsFormedLater: ranks are started first, and the world is formed once, when a rank asks or some time later.
func TestWorldIsFormedLater(t *testing.T) {
	for name, asks := range map[string]bool{"a rank asks": true, "none asks": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var formed, later atomic.Int32
			daemon := func(c *conversation) {
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
				c.exit()
			}
			s := &script{t: t, daemons: map[string]func(*conversation){"a": daemon, "b": daemon}}
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
