package launcher_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"gorun/contrib/must"
	"gorun/launcher"
	"gorun/rendezvous/wire"
)

// TestStallNamesCrossings: a line names ranks that wait for each other under one name in different operations.
func TestStallNamesCrossings(t *testing.T) {
	ops := func(host string, ranks ...int) []wire.Waiting {
		missing := []wire.Missing{{Host: host, Ranks: ranks}}
		return []wire.Waiting{{Kind: "allreduce", Name: "allreduce.x", AgeMS: 1200, Late: true, Missing: missing},
			{Kind: "allgather", Name: "allgather.y_1of2", Group: 3, AgeMS: 1100, Late: true, Missing: missing},
			{Kind: "allgather", Name: "allgather.y_2of2", Group: 3, AgeMS: 1100, Late: true, Missing: missing}}
	}
	others := func(host string, ranks ...int) []wire.Waiting {
		missing := []wire.Missing{{Host: host, Ranks: ranks}}
		return []wire.Waiting{{Kind: "broadcast", Name: "broadcast.x", AgeMS: 1200, Late: true, Missing: missing},
			{Kind: "allgather", Name: "allgather.y", Group: 3, AgeMS: 1100, Late: true, Missing: missing}}
	}
	report := slices.Concat(ops("b", 2, 3), others("a", 0, 1))
	there := make(chan bool, 1) // the other daemon
	daemon := func(speaks bool) func(*conversation) {
		return func(c *conversation) {
			if !c.begin() {
				return
			}
			if speaks {
				<-there
				c.say(&wire.Stalled{Ops: report})
			} else {
				there <- true
			}
			for asked := 0; asked < 2; {
				switch c.hear().(type) {
				case nil:
					return
				case *wire.AskStalled:
					asked++
					c.say(&wire.Stalled{Asked: true, Ops: report})
					if speaks && asked == 1 { // what was answered is judged when both are asked again
						c.say(&wire.Stalled{Ops: report})
					}
				}
			}
			for _, r := range c.at.Ranks {
				c.say(&wire.Exited{Process: r.Process})
			}
			c.end()
		}
	}
	s := &script{t: t, daemons: map[string]func(*conversation){"a": daemon(true), "b": daemon(false)}}
	_, notes, err := start(t, t.Context(), s, func(s *launcher.Spec) { s.Verbose = false })
	must.Do(t, err)
	got := strings.Join(notes, "\n")
	for _, want := range []string{
		`gorun: stall: the same name, different operations: ranks 0-1 on a in allreduce "x", ranks 2-3 on b in broadcast "x"; call the same one on all of them`,
		`gorun: stall: the same name, different operations: ranks 2-3 on b in allgather "y" of process set 3, ranks 0-1 on a in allgather of 2 tensors "y" of process set 3; call the same one on all of them`,
		`gorun: stall: allreduce "allreduce.x", allgather "allgather.y_1of2" of process set 3, allgather "allgather.y_2of2" of process set 3 have waited up to `,
	} {
		if strings.Count(got, want) != 1 {
			t.Errorf("notes:\n%s\nwithout\n%s", got, want)
		}
	}
}

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
		"a": func(c *conversation) {
			if !c.begin() {
				return
			}
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
			for _, r := range c.at.Ranks {
				c.say(&wire.Exited{Process: r.Process})
			}
			c.end()
		},
		"b": func(c *conversation) {
			if !c.begin() {
				return
			}
			step <- true
			answer(c, waits(5000, false, wire.Missing{Host: "b", Ranks: []int{3}}, wire.Missing{Host: "a", Ranks: []int{0, 1}}))
			step <- true
			answer(c, waits(14000, false, wire.Missing{Host: "b", Ranks: []int{3}}))
			step <- true
			answer(c, &wire.Stalled{})
			for _, r := range c.at.Ranks {
				c.say(&wire.Exited{Process: r.Process})
			}
			c.end()
		},
	}}
	_, notes, err := start(t, t.Context(), s, func(s *launcher.Spec) {
		s.Verbose = false
		s.Number = func() int { return 7 }
	})
	must.Do(t, err)
	got := strings.Join(notes, "\n")
	want := `gorun: stall: allreduce "x", barrier "y" of process set 3 have waited up to 61 s for rank 3 on b
gorun: hint: gorun why 7 shows what they do
gorun: stall: allreduce "x", barrier "y" of process set 3 are over after up to `
	if !strings.HasPrefix(got, want) || strings.Count(got, "\n") != 2 {
		t.Errorf("notes:\n%s\nwant\n%s", got, want)
	}
}

// TestStallGivesUp: what waits for longer than it shall is failed everywhere, with the names of the ranks.
func TestStallGivesUp(t *testing.T) {
	op := wire.Waiting{Kind: "allreduce", Name: "x", AgeMS: 9000, Late: true, Over: true, Missing: []wire.Missing{{Host: "b", Ranks: []int{3}}}}
	s := &script{t: t, daemons: both(func(c *conversation) {
		if !c.begin() {
			return
		}
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
				for _, r := range c.at.Ranks {
					c.say(&wire.Exited{Process: r.Process})
				}
				c.end()
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

// TestStallOfMany: operations are named, up to so many, and each is given up with what it waited for itself.
func TestStallOfMany(t *testing.T) {
	late := func(name string, rank int, over bool) wire.Waiting {
		return wire.Waiting{Kind: "allreduce", Name: name, AgeMS: 9000, Late: true, Over: over,
			Missing: []wire.Missing{{Host: "b", Ranks: []int{rank}}}}
	}
	ops := []wire.Waiting{late("other", 2, true)}
	for i := range 20 {
		ops = append(ops, late(fmt.Sprintf("x%02d", i), 3, false))
	}
	s := &script{t: t, daemons: both(func(c *conversation) {
		if !c.begin() {
			return
		}
		if c.job.HostID == 0 {
			c.say(&wire.Stalled{Ops: ops})
		}
		for {
			switch m := c.hear().(type) {
			case nil:
				return
			case *wire.AskStalled:
				c.say(&wire.Stalled{Asked: true, Ops: ops})
			case *wire.GiveUp:
				texts := map[string]string{}
				for _, each := range m.Each {
					texts[each.Name] = each.Text
				}
				if len(texts) != 21 || !strings.HasPrefix(texts["other"], `allreduce "other" waited 9.0 s for rank 2 on b, which is the limit`) ||
					!strings.HasPrefix(texts["x19"], `allreduce "x19" waited 9.0 s for rank 3 on b, and another operation until the limit`) {
					t.Errorf("give up because %v", texts)
				}
				for _, r := range c.at.Ranks {
					c.say(&wire.Exited{Process: r.Process})
				}
				c.end()
				return
			}
		}
	})}
	_, notes, err := start(t, t.Context(), s, func(s *launcher.Spec) { s.Verbose = false })
	if err != nil || len(notes) != 3 || !strings.Contains(notes[0], `stall: allreduce "other" has waited 9.0 s for rank 2 on b`) ||
		!strings.Contains(notes[1], `stall: allreduce "x00", allreduce "x01", `) ||
		!strings.Contains(notes[1], `, allreduce "x15" and 4 more have waited up to 9.0 s for rank 3 on b`) {
		t.Errorf("error %v, notes:\n%s", err, strings.Join(notes, "\n"))
	}
}

// TestStallWithoutAnswer: a host that does not answer is named as such.
func TestStallWithoutAnswer(t *testing.T) {
	over := make(chan bool)
	s := &script{t: t, daemons: both(func(c *conversation) {
		if !c.begin() {
			return
		}
		if c.job.HostID == 0 {
			missing := []wire.Missing{{Host: "b", Ranks: []int{2, 3}}}
			late := wire.Waiting{Kind: "allreduce", Name: "x", AgeMS: 9000, Late: true, Missing: missing}
			c.say(&wire.Stalled{Ops: []wire.Waiting{late}})
			c.hear()
			c.say(&wire.Stalled{Asked: true, Ops: []wire.Waiting{late}})
		}
		<-over
		for _, r := range c.at.Ranks {
			c.say(&wire.Exited{Process: r.Process})
		}
		c.end()
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
