package collective

import (
	"testing"

	"gorun/collective/link"
	"gorun/collective/schedule"
)

type nowhere struct{}

func (nowhere) Send(int, *link.Segment) {}

type tally []Result

func (c *tally) Complete(_ uint64, r Result) { *c = append(*c, r) }

// Spilled returns the bytes of results that pass through an engine.
func Spilled(e *Engine) int64 { return e.spilled.Load() }

// The world may end between the verdict and the start: the ranks hear of it once.
func TestAbortBeforeStart(t *testing.T) {
	e := New(Config{Transport: nowhere{}})
	if err := e.SetWorld(twoHosts); err != nil {
		t.Fatal(err)
	}
	var heard tally
	e.mu.Lock()
	g := e.groups.byID[0]
	for index := range g.local() {
		r := part("x")
		r.Client, r.In, r.Out = &heard, make([]byte, 4), make([]byte, 4)
		if err := e.negotiation.submit(g, index, *r); err != nil {
			t.Fatal(err)
		}
	}
	theirs := part("x")
	theirs.In = make([]byte, 4)
	msg := e.negotiation.inlines.append(appendReady(nil, 0, 0, []Request{*theirs}, []int{2}), g, []Request{*theirs}, 0)
	err := e.negotiation.hear(20, msg)
	todo := e.drain(nil)
	e.mu.Unlock()
	if err != nil || !starts(todo) {
		t.Fatalf("events %+v, %v", todo, err)
	}
	gone := &Error{Code: CodeAborted, Text: "gone"}
	e.Abort(gone)
	e.follow(todo)
	if len(heard) != 2 || heard[0].Err != gone || heard[1].Err != gone {
		t.Errorf("ranks heard %+v", heard)
	}
}

// A stream may have found the op of a segment right before the op ended: the segment is refused, whether the op is
// pooled or serves another name by then.
func TestSegmentAfterTheEnd(t *testing.T) {
	e := New(Config{Transport: nowhere{}})
	if err := e.SetWorld(twoHosts); err != nil {
		t.Fatal(err)
	}
	e.mu.Lock()
	g := e.groups.byID[0]
	o := e.fresh(g, 7, "x")
	e.mu.Unlock()
	o.strategy = &broadcast{base{o}}
	o.run.steps = []schedule.Step{{Do: schedule.Take, Peer: 1, After: -1, Hi: 8}}
	o.run.cut, o.acc = 8, make([]byte, 8)
	o.remaining = o.run.begin(len(g.hosts))
	o.started = true
	h := link.Header{Kind: link.Data, Op: 7, Length: 8}
	if dst, err := o.place(20, &h); err != nil || len(dst) != 8 {
		t.Fatalf("a segment in time: %v, %v", dst, err)
	}
	o.stage = pooled
	o.forget()
	expect := func(when string) {
		t.Helper()
		if dst, err := o.place(20, &h); err != errUnknown || dst != nil {
			t.Errorf("%s: %v, %v", when, dst, err)
		}
		o.deliver(20, h, make([]byte, 8))
		if len(o.stash.segments) > 0 {
			t.Errorf("%s: the segment is kept", when)
		}
	}
	expect("pooled")
	o.reset(g, 1, 8, "y")
	expect("under another name")
}
