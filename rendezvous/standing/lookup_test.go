package standing

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestQueueLookup: a job looks for the daemon that keeps the queue. A host that keeps it no more, or is lost, is waited
// for until another one does, which the hosts find out by themselves; but not a daemon that was never there, or that
// refuses.
func TestQueueLookup(t *testing.T) {
	lost := errors.New("no route to host")
	for name, tc := range map[string]struct {
		steps  string        // the answers of the daemons that are asked: "→x" that x keeps the queue, "q x y" that it waits there, and x and y are others, "!" nothing
		wait   time.Duration // between each two of these
		want   string        // who was asked
		waited int
		err    error
	}{
		"it is kept elsewhere":                       {steps: "→k", want: "a k"},
		"nobody is there":                            {steps: "!", want: "a", err: lost},
		"who kept it is lost":                        {steps: "→k,!,→k,!,→b", want: "a k a k a b", waited: 1, wait: 2 * time.Second},
		"who keeps it is lost while the job waits":   {steps: "→k,q a b k,!,!,→b", want: "a k k a b b", waited: 1, wait: 2 * time.Second},
		"whom the user named is lost while it waits": {steps: "q b c,!,→a,!,→b", want: "a a b a b b", waited: 1, wait: 2 * time.Second},
		"for longer than it may be":                  {steps: "→k,!,→k,!,→k,!,→k,!", want: "a k a k a k", wait: 20 * time.Second, waited: 1, err: lost},
		"it was in the queue meanwhile":              {steps: "→k,!,q b,!,→k,!,→k", want: "a k a a b k a k", wait: 20 * time.Second, waited: 3},
		"it says no":                                 {steps: "→k,no", want: "a k", err: &RefusedError{Text: "no"}},
		"it has another key":                         {steps: "→k,key", want: "a k", err: ErrKey},
	} {
		t.Run(name, func(t *testing.T) {
			q, now, waited := newLookup("a"), time.Unix(1000, 0), 0
			asked := []string{q.at}
			var final error
			for _, step := range strings.Split(tc.steps, ",") {
				now = now.Add(tc.wait)
				var text string
				switch to, sent := strings.CutPrefix(step, "→"); {
				case sent:
					_, final = q.sent(now, to)
				case step == "no":
					_, final = q.failed(now, fmt.Errorf("asked: %w", &RefusedError{Text: "no"}))
				case step == "key":
					_, final = q.failed(now, fmt.Errorf("asked: %w", ErrKey))
				case step == "!":
					text, final = q.failed(now, lost)
				default:
					q.queued(strings.Fields(step)[1:])
				}
				if text != "" {
					waited++
				}
				if final != nil {
					break
				}
				asked = append(asked, q.at)
			}
			if got := strings.Join(asked, " "); got != tc.want || waited != tc.waited {
				t.Errorf("asked %s and reported %d waits, want %s and %d", got, waited, tc.want, tc.waited)
			}
			var no *RefusedError
			if !errors.Is(final, tc.err) && !(errors.As(final, &no) && no.Text == "no") {
				t.Errorf("error %v, want %v", final, tc.err)
			}
		})
	}
}

// TestQuestGoesRound: daemons that send a launcher from one to the other are asked again after a moment, and not for
// ever.
func TestQuestGoesRound(t *testing.T) {
	q, now := newLookup("a"), time.Unix(1000, 0)
	rests := 0
	for n := 1; ; n++ {
		rest, err := q.sent(now, string(rune('a'+n%2)))
		if rest {
			rests++
			now = now.Add(time.Second)
		}
		if err != nil {
			if err.Error() != "the daemons do not agree on who keeps the queue" {
				t.Error(err)
			}
			break
		}
		if n > 10000 {
			t.Fatal("it goes on for ever")
		}
	}
	if rests != 61 {
		t.Errorf("%d pauses", rests)
	}
}
