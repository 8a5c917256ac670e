package collective

import (
	"testing"

	"gorun/collective/link"
)

type nowhere struct{}

func (nowhere) Send(int, *link.Segment) {}

type tally []Result

func (c *tally) Complete(_ uint64, r Result) { *c = append(*c, r) }

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
	msg := e.negotiation.(*readiness).appendInline(appendReady(nil, 0, 0, []Request{*theirs}, []int{2}), g, []Request{*theirs})
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
