package migrate_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"gorun/worker/migrate"
)

// guest drives a Dialogue with a clock of its own.
type guest struct {
	t      *testing.T
	d      migrate.Dialogue
	now    time.Time
	events []string // kind of each, and operation
	limit  time.Duration
	asked  string // the last command
}

func newGuest(t *testing.T) *guest { return &guest{t: t, now: time.Unix(1_666_730_000, 0)} }

var kinds = map[migrate.Kind]string{migrate.Registered: "registered", migrate.Refused: "refused", migrate.Starts: "starts",
	migrate.Acknowledged: "acknowledged", migrate.Ends: "ends", migrate.Stays: "stays", migrate.Moved: "moved",
	migrate.Waits: "waits", migrate.Lasts: "lasts", migrate.Missed: "missed"}

func (g *guest) take(events []migrate.Event) {
	for _, ev := range events {
		g.events = append(g.events, strings.TrimSpace(kinds[ev.Kind]+" "+ev.Operation))
		g.limit = ev.Limit
	}
}

// ask waits until something is due and checks that it is verb.
func (g *guest) ask(verb string) {
	g.t.Helper()
	for range 10 {
		command, wait, events := g.d.Next(g.now)
		g.take(events)
		if command == "" {
			if wait <= 0 {
				g.t.Fatalf("nothing to do for %v", wait)
			}
			g.now = g.now.Add(wait)
			continue
		}
		g.asked = command
		if !strings.HasPrefix(command, "vm-operation-notification."+verb+" ") {
			g.t.Fatalf("asks %s, want %s", command, verb)
		}
		return
	}
	g.t.Fatalf("never asks %s", verb)
}

// answer gives an answer to what was asked.
func (g *guest) answer(format string, args ...any) {
	g.t.Helper()
	g.take(g.d.Answer(g.now, fmt.Sprintf(format, args...)))
}

// expect checks what happened since it was last called.
func (g *guest) expect(events ...string) {
	g.t.Helper()
	if !slices.Equal(g.events, events) {
		g.t.Errorf("happened: %q, want %q", g.events, events)
	}
	g.events = nil
}

const (
	ok   = `{"version":"1.0.0","result":true}`
	lost = `{"version":"1.0.0","result":false,"errorMessage":"Could not find application with the token."}`
	op   = "6279072692702276663"
)

func (g *guest) register() {
	g.t.Helper()
	g.ask("register")
	g.answer(`{"version":"1.0.0","result":true,"guaranteed":true,"uniqueToken":"525b5364","notificationTimeoutInSec":120}`)
	g.expect("registered")
	g.ask("check-for-event")
	if !strings.Contains(g.asked, `{"uniqueToken":"525b5364"}`) {
		g.t.Errorf("asks %s", g.asked)
	}
}

func (g *guest) happens(event, id, more string) {
	g.t.Helper()
	g.answer(`{"version":"1.0.0","result":true,"eventType":%q,"opType":"host-migration","eventGenTimeInSec":%d,"notificationTimeoutInSec":120,"operationId":%s%s}`,
		event, g.now.Unix(), id, more)
}

func TestMove(t *testing.T) {
	g := newGuest(t)
	g.register()
	g.answer(ok)
	before := g.now
	g.ask("check-for-event")
	if waited := g.now.Sub(before); waited != migrate.Idle {
		t.Errorf("asked again after %v", waited)
	}
	g.happens("start", op, "")
	g.expect("starts " + op)
	g.ask("check-for-event") // there may be more
	g.answer(ok)
	g.d.Quiet(g.now)
	g.ask("ack-event")
	if !strings.Contains(g.asked, `"operationId":`+op+`,"uniqueToken":"525b5364"`) {
		t.Errorf("asks %s", g.asked)
	}
	g.answer(`{"result":true,"operationId":%s,"ackStatus":"ack_received"}`, op)
	g.expect("acknowledged " + op)
	g.ask("check-for-event")
	g.happens("end", op, `,"opStatus":"success"`)
	g.expect("ends " + op)
	if bye := g.d.Leave(); bye != `vm-operation-notification.unregister {"uniqueToken":"525b5364"}` {
		t.Errorf("says goodbye by %s", bye)
	}
	if g.d.Token() != "525b5364" {
		t.Error("the token is forgotten before the registration is ended")
	}
	if g.answer(ok); g.d.Token() != "" {
		t.Errorf("keeps token %s", g.d.Token())
	}
}

// TestInherited: a registration that no one ended is ended before the next one, whatever vSphere answers.
func TestInherited(t *testing.T) {
	const busy = `{"result":false,"errorMessage":"The operation is not allowed in the current state."}`
	for name, tc := range map[string]struct {
		answers []string
		happens []string
	}{
		"ended":        {[]string{ok}, nil},
		"long gone":    {[]string{lost}, nil},
		"later":        {[]string{busy, "vmtoolsd: signal: killed", ok}, []string{"refused", "refused"}},
		"not any more": {slices.Repeat([]string{busy}, 9), []string{"refused"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGuest(t)
			if command, _, _ := g.d.Next(g.now); !g.d.Registers() {
				t.Fatalf("begins with %s", command)
			}
			g.d.Inherit("old")
			for _, answer := range tc.answers {
				g.ask("unregister")
				if !strings.Contains(g.asked, `{"uniqueToken":"old"}`) || g.d.Token() != "old" {
					t.Fatalf("asks %s and keeps %s", g.asked, g.d.Token())
				}
				g.answer("%s", answer)
			}
			g.expect(tc.happens...)
			g.register()
			if g.d.Token() != "525b5364" {
				t.Errorf("keeps token %s", g.d.Token())
			}
		})
	}
	t.Run("another's", func(t *testing.T) {
		g := newGuest(t)
		for range 3 {
			g.ask("register")
			g.take(g.d.Refuse(g.now, "it is another's"))
		}
		g.expect("refused") // once
		g.register()
	})
}

func TestFailures(t *testing.T) {
	begin := func(t *testing.T) *guest {
		g := newGuest(t)
		g.register()
		g.happens("start", op, "")
		g.expect("starts " + op)
		return g
	}
	t.Run("a move that fails", func(t *testing.T) {
		g := begin(t)
		g.ask("check-for-event")
		g.happens("end", op, `,"opStatus":"failure"`)
		g.expect("stays " + op)
		g.d.Quiet(g.now) // too late: nothing is acknowledged
		g.ask("check-for-event")
	})
	t.Run("a timeout that changes", func(t *testing.T) {
		g := begin(t)
		g.ask("check-for-event")
		g.now = g.now.Add(10 * time.Second)
		g.happens("timeout-change", op, `,"newNotificationTimeoutInSec":60`)
		g.expect("waits " + op)
		if g.limit != 50*time.Second {
			t.Errorf("vSphere waits for %v, want 50 s: 60 s from the announcement", g.limit)
		}
		g.d.Quiet(g.now)
		g.ask("ack-event")
		g.answer(ok)
		g.ask("check-for-event")
		g.happens("timeout-change", op, `,"newNotificationTimeoutInSec":30`)
		g.ask("ack-event") // this one by itself
		g.answer(ok)
		g.expect("acknowledged "+op, "acknowledged "+op)
	})
	t.Run("a token that is lost", func(t *testing.T) {
		g := begin(t)
		g.d.Quiet(g.now)
		g.ask("ack-event")
		g.answer(lost)
		g.ask("register")
		g.answer(`{"result":true,"uniqueToken":"other","notificationTimeoutInSec":120}`)
		g.ask("ack-event")
		if !strings.Contains(g.asked, `"uniqueToken":"other"`) {
			t.Errorf("asks %s", g.asked)
		}
		g.answer(ok)
		g.ask("check-for-event")
		g.happens("end", op, `,"opStatus":"success"`)
		g.expect("registered", "acknowledged "+op, "ends "+op)
	})
	t.Run("clocks that differ", func(t *testing.T) {
		for _, made := range []int64{-1000, 1000} {
			g := newGuest(t)
			g.register()
			g.answer(`{"result":true,"eventType":"start","eventGenTimeInSec":%d,"notificationTimeoutInSec":120,"operationId":7}`, g.now.Unix()+made)
			g.expect("starts 7")
		}
	})
	late := func(t *testing.T) *guest {
		g := newGuest(t)
		g.register()
		g.answer(ok)
		g.ask("check-for-event")
		g.now = g.now.Add(121 * time.Second) // it stood still
		g.happens("start", "7", "")
		g.happens("start", "7", "")
		g.expect()
		g.ask("check-for-event")
		return g
	}
	t.Run("an event that is stale", func(t *testing.T) {
		g := late(t)
		g.happens("end", "7", `,"opStatus":"success"`)
		g.expect("missed 7", "moved 7")
		g.ask("check-for-event")
	})
	t.Run("two events of which one is stale", func(t *testing.T) {
		g := late(t)
		g.happens("start", "8", "")
		g.ask("check-for-event")
		g.answer(ok)
		g.expect("missed 7", "starts 8")
	})
	t.Run("an event that was read late and counts", func(t *testing.T) {
		for _, answer := range []string{ok, "vmtoolsd: rpc channel: no", lost} {
			g := late(t)
			g.happens("timeout-change", "7", `,"newNotificationTimeoutInSec":30`)
			g.ask("check-for-event")
			g.answer("%s", answer)
			g.expect("starts 7")
			if g.limit != 30*time.Second {
				t.Errorf("vSphere waits for %v", g.limit)
			}
		}
	})
	t.Run("an event that comes twice", func(t *testing.T) {
		g := begin(t)
		g.ask("check-for-event")
		g.happens("start", op, "")
		g.ask("check-for-event")
		g.happens("end", op, `,"opStatus":"success"`)
		g.ask("check-for-event")
		g.happens("end", op, `,"opStatus":"success"`)
		g.expect("ends " + op)
	})
	t.Run("an end that never comes", func(t *testing.T) {
		g := begin(t)
		g.now = g.now.Add(120*time.Second + migrate.Grace + time.Second)
		g.ask("check-for-event")
		g.expect("lasts " + op)
		g.answer(ok)
		g.now = g.now.Add(migrate.Forget - migrate.Grace - 10*time.Second)
		g.ask("check-for-event")
		g.expect()
		g.answer(ok)
		g.now = g.now.Add(10 * time.Second)
		g.ask("check-for-event")
		g.expect("ends " + op)
	})
	for name, tc := range map[string]struct {
		end  func(g *guest)
		want string
	}{
		"vSphere tells":         {func(g *guest) { g.happens("end", op, `,"opStatus":"success"`) }, "ends " + op},
		"vSphere tells a fault": {func(g *guest) { g.happens("end", op, `,"opStatus":"failure"`) }, "stays " + op},
		"the session tells":     {func(g *guest) { g.take(g.d.Session(g.now, "another")) }, "ends " + op},
	} {
		t.Run("a move that takes long, "+name, func(t *testing.T) {
			g := begin(t)
			g.take(g.d.Session(g.now, "one"))
			g.now = g.now.Add(120*time.Second + migrate.Grace + time.Second)
			g.ask("check-for-event")
			g.expect("lasts " + op)
			g.answer(ok)
			g.now = g.now.Add(10 * time.Minute)
			g.ask("check-for-event")
			if !g.d.WantsSession() {
				t.Error("the session may tell that it is over")
			}
			tc.end(g)
			g.expect(tc.want)
		})
	}
	t.Run("an acknowledgement that does not come through", func(t *testing.T) {
		g := begin(t)
		g.d.Quiet(g.now)
		for range 3 {
			g.ask("ack-event")
			g.answer("signal: killed")
			g.ask("check-for-event") // it may be over
			g.answer(ok)
		}
		g.ask("ack-event")
		g.answer(ok)
		g.expect("acknowledged " + op)
	})
	t.Run("one that never does", func(t *testing.T) {
		g := begin(t)
		g.d.Quiet(g.now)
		g.now = g.now.Add(121 * time.Second) // no one waits for it
		g.ask("ack-event")
		g.answer("signal: killed")
		for range 3 {
			g.ask("check-for-event")
			g.answer(ok)
		}
		g.expect()
	})
	for name, event := range map[string]string{"start": "", "timeout-change": `,"newNotificationTimeoutInSec":60`, "snapshot": ""} {
		t.Run("an event that comes again and again: "+name, func(t *testing.T) {
			g := begin(t)
			calls := 0
			for end := g.now.Add(10 * time.Second); g.now.Before(end); {
				command, wait, _ := g.d.Next(g.now)
				if command == "" {
					g.now = g.now.Add(wait)
					continue
				}
				calls++
				g.happens(name, op, event)
				g.now = g.now.Add(4 * time.Millisecond) // what it takes
			}
			if calls > 60 {
				t.Errorf("vSphere was asked %d times in 10 s", calls)
			}
		})
	}
	t.Run("one move after another", func(t *testing.T) {
		g := begin(t)
		g.ask("check-for-event")
		g.happens("start", "8", "")
		g.expect("ends "+op, "starts 8")
	})
	t.Run("notifications that are off", func(t *testing.T) {
		g := newGuest(t)
		for range 3 {
			g.ask("register")
			before := g.now
			g.answer(`{"version":"1.0.0","result":false,"errorMessage":"VM operation notification not enabled on this VM"}`)
			g.ask("register")
			if waited := g.now.Sub(before); waited < time.Minute {
				t.Errorf("asks again after %v", waited)
			}
		}
		g.expect("refused") // once
	})
	t.Run("a program that fails", func(t *testing.T) {
		g := newGuest(t)
		g.register()
		for range 8 {
			before := g.now
			g.answer("vmtoolsd: rpc channel: no")
			g.ask("check-for-event")
			if waited := g.now.Sub(before); waited < time.Second || waited > 30*time.Second {
				t.Errorf("asks again after %v", waited)
			}
		}
		g.answer(ok)
		g.ask("check-for-event")
		g.happens("start", op, "")
		g.expect("starts " + op)
	})
	t.Run("the session tells", func(t *testing.T) {
		g := newGuest(t)
		g.take(g.d.Session(g.now, "a1\n"))
		g.take(g.d.Session(g.now, ""))
		g.take(g.d.Session(g.now, "a1"))
		g.expect()
		g.take(g.d.Session(g.now, "b2"))
		g.expect("moved")
		g.register()
		g.happens("start", op, "")
		g.take(g.d.Session(g.now, "c3"))
		g.ask("check-for-event")
		g.happens("end", op, `,"opStatus":"success"`) // known already
		g.expect("starts "+op, "ends "+op)
	})
}

// TestSessionOfTheNextMove: after a move that vSphere reports, the id that was known before it means nothing for the
// next one, nor does an id that someone asked for before the end was read.
func TestSessionOfTheNextMove(t *testing.T) {
	for name, happens := range map[string]func(g *guest){
		"a move that vSphere ends": func(g *guest) {
			g.happens("start", "7", "")
			g.ask("check-for-event")
			g.happens("end", "7", `,"opStatus":"success"`)
			g.expect("starts 7", "ends 7")
		},
		"one that was not announced": func(g *guest) {
			g.happens("end", "7", `,"opStatus":"success"`)
			g.expect("moved 7")
		},
		"one that was read too late, with its end": func(g *guest) {
			g.now = g.now.Add(121 * time.Second)
			g.happens("start", "7", "")
			g.ask("check-for-event")
			g.happens("end", "7", `,"opStatus":"success"`)
			g.expect("missed 7", "moved 7")
		},
		"one that was read too late, whose end is lost": func(g *guest) {
			g.now = g.now.Add(121 * time.Second)
			g.happens("start", "7", "")
			g.ask("check-for-event")
			g.happens("start", "8", "")
			g.expect("missed 7")
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGuest(t)
			g.take(g.d.Session(g.now, "a1"))
			g.register()
			g.answer(ok)
			g.ask("check-for-event")
			asked := g.now
			g.now = g.now.Add(time.Millisecond)
			happens(g)
			g.take(g.d.Session(asked, "a1")) // it took until now
			if !g.d.WantsSession() {
				t.Error("nobody asks what the session is now")
			}
			g.ask("check-for-event")
			g.happens("start", "8", "")
			g.ask("check-for-event")
			g.answer(ok)
			g.expect("starts 8")
			g.take(g.d.Session(g.now, "b2")) // since the move before
			g.expect()
			g.take(g.d.Session(g.now, "c3"))
			g.expect("ends 8")
		})
	}
}

// vsphere is the other side, which makes mistakes.
type vsphere struct {
	rng     *rand.Rand
	token   int // 0: no one is registered
	denied  int // registrations, because there is one already
	queue   []string
	acked   map[string]bool
	quiet   map[string]bool
	changed map[string]bool
}

func (v *vsphere) serve(t *testing.T, command string) string {
	switch v.rng.IntN(40) {
	case 0:
		v.token = 0
	case 1:
		return "" // the program broke down
	case 2:
		return `{"result":true,"operationId":"x"` // and here in the middle
	}
	verb, body, _ := strings.Cut(strings.TrimPrefix(command, "vm-operation-notification."), " ")
	if verb == "register" {
		if v.token != 0 {
			v.denied++
			return `{"result":false,"errorMessage":"Max allowed limit of 1 concurrent apps already registered."}`
		}
		v.token = 1 + v.rng.IntN(1000)
		return fmt.Sprintf(`{"result":true,"uniqueToken":"%d","notificationTimeoutInSec":60}`, v.token)
	}
	if v.token == 0 || !strings.Contains(body, fmt.Sprintf(`"uniqueToken":"%d"`, v.token)) {
		return lost
	}
	if verb == "unregister" {
		v.token = 0
		return ok
	}
	if verb == "ack-event" {
		var id string
		for _, c := range body[len(`{"operationId":`):] {
			if c < '0' || c > '9' {
				break
			}
			id += string(c)
		}
		if !v.quiet[id] && !v.changed[id] {
			t.Errorf("operation %s is acknowledged too early", id)
		}
		v.acked[id] = true
		return ok
	}
	if len(v.queue) == 0 {
		return ok
	}
	event := v.queue[0]
	v.queue = v.queue[1:]
	return event
}

// TestSchedules: whatever goes wrong, moves begin and end in turn, nothing is acknowledged before its time, and the
// dialogue goes on, also by someone else who knows nothing but the token.
func TestSchedules(t *testing.T) {
	acknowledged, missed, lasted := 0, 0, 0
	for seed := range uint64(40) {
		v := &vsphere{rng: rand.New(rand.NewPCG(seed, 1)), acked: map[string]bool{}, quiet: map[string]bool{}, changed: map[string]bool{}}
		var d migrate.Dialogue
		now := time.Unix(1_700_000_000, 0)
		moving, begun := "", 0
		var quietAt time.Time
		take := func(events []migrate.Event) {
			for _, ev := range events {
				switch ev.Kind {
				case migrate.Starts:
					if moving != "" {
						t.Errorf("seed %d: %s begins during %q", seed, ev.Operation, moving)
					}
					moving, quietAt = ev.Operation, now.Add(time.Duration(v.rng.IntN(5000))*time.Millisecond)
				case migrate.Ends, migrate.Stays:
					if moving != ev.Operation {
						t.Errorf("seed %d: %s ends during %q", seed, ev.Operation, moving)
					}
					moving = ""
				case migrate.Lasts:
					if moving != ev.Operation {
						t.Errorf("seed %d: %s lasts during %q", seed, ev.Operation, moving)
					}
					lasted++
				case migrate.Acknowledged:
					acknowledged++
				case migrate.Missed:
					missed++
				}
			}
		}
		commands, same := 0, 0
		for step := 0; step < 1000; step++ {
			if v.rng.IntN(50) == 0 && step < 700 && len(v.queue) < 4 {
				begun++
				id := fmt.Sprint(9_000_000_000_000_000_000 + uint64(begun))
				made := now.Unix() + int64(v.rng.IntN(4000)-2000) // by another clock
				event := func(kind, more string) {
					if v.rng.IntN(10) > 0 { // events get lost
						v.queue = append(v.queue, fmt.Sprintf(`{"result":true,"eventType":%q,"eventGenTimeInSec":%d,"notificationTimeoutInSec":1000,"operationId":%s%s}`, kind, made, id, more))
					}
				}
				event("start", "")
				if v.rng.IntN(3) == 0 {
					v.changed[id] = true
					event("timeout-change", `,"newNotificationTimeoutInSec":500`)
				}
				event("end", []string{`,"opStatus":"success"`, `,"opStatus":"failure"`}[v.rng.IntN(2)])
				if v.rng.IntN(6) == 0 {
					now = now.Add(2000 * time.Second) // the guest is paused, and reads all that too late
				}
			}
			if v.rng.IntN(100) == 0 {
				take(d.Session(now, fmt.Sprint(v.rng.IntN(3))))
			}
			if moving != "" && !now.Before(quietAt) {
				v.quiet[moving] = true
				d.Quiet(now)
			}
			if v.rng.IntN(200) == 0 { // kill -9
				kept := d.Token()
				d, moving = migrate.Dialogue{}, ""
				d.Next(now)
				d.Inherit(kept)
			}
			command, wait, events := d.Next(now)
			take(events)
			if command == "" {
				if wait <= 0 || wait > time.Minute {
					t.Fatalf("seed %d: waits %v", seed, wait)
				}
				now, same = now.Add(wait), 0
				continue
			}
			if commands, same = commands+1, same+1; same > 64 {
				t.Fatalf("seed %d: asks %d times without a pause", seed, same)
			}
			now = now.Add(time.Millisecond)
			take(d.Answer(now, v.serve(t, command)))
		}
		for range 800 { // time passes: whatever is under way ends
			now = now.Add(5 * time.Second)
			if command, _, events := d.Next(now); command != "" {
				take(events)
				take(d.Answer(now, ok))
			} else {
				take(events)
			}
		}
		if moving != "" || commands < 50 || v.denied > 0 {
			t.Errorf("seed %d: %q never ends, %d commands, not registered %d times", seed, moving, commands, v.denied)
		}
	}
	if acknowledged == 0 || missed == 0 || lasted == 0 {
		t.Errorf("%d moves were acknowledged, %d missed, %d lasted for long", acknowledged, missed, lasted)
	}
}

func TestPulse(t *testing.T) {
	p := migrate.Pulse{Period: time.Second, Late: 2 * time.Second}
	at := 10 * time.Second
	for i, tc := range []struct{ after, gap time.Duration }{
		{0, 0}, {time.Second, 0}, {2500 * time.Millisecond, 0}, {4 * time.Second, 3 * time.Second}, {0, 0}, {time.Second, 0}, {time.Minute, 59 * time.Second},
	} {
		at += tc.after
		if gap := p.Beat(at); gap != tc.gap {
			t.Errorf("beat %d: stood still for %v, want %v", i, gap, tc.gap)
		}
	}
}

func FuzzAnswer(f *testing.F) {
	for _, s := range []string{ok, lost, "", "{", `{"result":true,"eventType":"start","operationId":1e999,"notificationTimeoutInSec":-5}`,
		`{"result":true,"eventType":"end","operationId":"7","opStatus":"success"}`, `{"result":true,"uniqueToken":"\u0000\""}`} {
		f.Add(s, s)
	}
	f.Fuzz(func(t *testing.T, first, second string) {
		var d migrate.Dialogue
		now := time.Unix(1_700_000_000, 0)
		for _, text := range []string{first, `{"result":true,"uniqueToken":"t"}`, first, second, first, second} {
			command, wait, _ := d.Next(now)
			if (command == "") == (wait == 0) {
				t.Errorf("says %q and waits %v", command, wait)
			}
			if command == "" {
				now = now.Add(wait)
				command, _, _ = d.Next(now)
			}
			if command == "" {
				t.Error("nothing is due when it should be")
			}
			d.Answer(now, text)
			d.Quiet(now)
		}
	})
}
