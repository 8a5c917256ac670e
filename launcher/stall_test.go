package launcher_test

import (
	"fmt"
	"strings"
	"testing"

	"gorun/contrib/must"
	"gorun/launcher"
	"gorun/rendezvous/wire"
)

// TestStallNamesRanks: the launcher puts together what the daemons know, reports it once, with the command that shows more,
// and reports when it changes, and when it is over.
func TestStallNamesRanks(t *testing.T) {
	waits := func(age int64, late bool, missing ...wire.Missing) *wire.Stalled {
		return &wire.Stalled{Ops: []wire.Waiting{{Kind: "allreduce", Name: "x", AgeMS: age, Late: late, Missing: missing},
			{Kind: "barrier", Name: "y", Group: 3, AgeMS: age, Late: late, Missing: missing}}}
	}
	// A round: someone finds something new, both are asked and answer.
	step := make(chan bool)
	answer := func(c *conversation, m *wire.Stalled) bool {
		for {
			switch c.hear().(type) {
			case nil:
				return false
			case *wire.AskStalled:
				m.Asked = true
				c.say(m)
				return true
			}
		}
	}
	s := &script{t: t, daemons: map[string]func(*conversation){
		"a": begun(func(c *conversation) {
			<-step // b is there too
			all := wire.Missing{Host: "b", Ranks: []int{2, 3}}
			c.say(waits(61000, true, all))
			answer(c, waits(61000, true, all))
			<-step
			c.say(waits(70000, true, all))
			answer(c, waits(70000, true, all))
			<-step
			c.say(&wire.Stalled{})
			answer(c, &wire.Stalled{})
			c.exit()
		}),
		"b": begun(func(c *conversation) {
			step <- true
			answer(c, waits(5000, false, wire.Missing{Host: "b", Ranks: []int{3}}, wire.Missing{Host: "a", Ranks: []int{0, 1}}))
			step <- true
			answer(c, waits(14000, false, wire.Missing{Host: "b", Ranks: []int{3}}))
			step <- true
			answer(c, &wire.Stalled{})
			c.exit()
		}),
	}}
	_, notes, err := start(t, t.Context(), s, func(s *launcher.Spec) {
		s.Verbose = false
		s.Number = func() int { return 7 }
	})
	must.Do(t, err)
	got := strings.Join(notes, "\n")
	want := `gorun: stall: allreduce "x", barrier "y" of process set 3 have waited up to 61 s for rank 3 on b
gorun: hint: gorun why 7 shows more
gorun: stall: allreduce "x", barrier "y" of process set 3 are over after up to `
	if !strings.HasPrefix(got, want) || strings.Count(got, "\n") != 2 {
		t.Errorf("notes:\n%s\nwant\n%s", got, want)
	}
}

// TestStallGivesUp: what waits for longer than it shall is failed everywhere, with the names of the ranks.
func TestStallGivesUp(t *testing.T) {
	op := wire.Waiting{Kind: "allreduce", Name: "x", AgeMS: 9000, Late: true, Over: true, Missing: []wire.Missing{{Host: "b", Ranks: []int{3}}}}
	s := &script{t: t, daemons: both(func(c *conversation) {
		if c.job.HostID == 0 {
			c.say(&wire.Stalled{Ops: []wire.Waiting{op}})
		}
		for {
			switch m := c.hear().(type) {
			case nil:
				return
			case *wire.AskStalled:
				c.say(&wire.Stalled{Asked: true, Ops: []wire.Waiting{op}})
			case *wire.GiveUp:
				if !strings.HasPrefix(m.Text, `allreduce "x" waited 9.0 s for rank 3 on b, which is the limit`) {
					t.Errorf("give up because %s", m.Text)
				}
				c.exit()
				return
			}
		}
	})}
	_, notes, err := start(t, t.Context(), s, func(s *launcher.Spec) {
		s.Verbose = false
		s.Number = func() int { return 0 } // no command finds the job, so none is named
	})
	if err != nil || len(notes) != 2 || !strings.HasSuffix(notes[1], ": giving up") {
		t.Errorf("error %v, notes %q", err, notes)
	}
}

// TestStallWithoutAnswer: a host that does not answer is named as such.
func TestStallWithoutAnswer(t *testing.T) {
	over := make(chan bool)
	s := &script{t: t, daemons: both(func(c *conversation) {
		if c.job.HostID == 0 {
			missing := []wire.Missing{{Host: "b", Ranks: []int{2, 3}}}
			late := wire.Waiting{Kind: "allreduce", Name: "x", AgeMS: 9000, Late: true, Missing: missing}
			c.say(&wire.Stalled{Ops: []wire.Waiting{late}})
			c.hear()
			c.say(&wire.Stalled{Asked: true, Ops: []wire.Waiting{late}})
		}
		<-over
		c.exit()
	})}
	var line string
	_, _, err := start(t, t.Context(), s, func(s *launcher.Spec) {
		s.Verbose = false
		s.Note = func(f string, a ...any) { line = fmt.Sprintf(f, a...); close(over) }
	})
	if err != nil || !strings.HasPrefix(line, `gorun: stall: allreduce "x" has waited `) || !strings.HasSuffix(line, " for ranks 2-3 on b (which does not answer)") {
		t.Errorf("error %v, line %q", err, line)
	}
}
