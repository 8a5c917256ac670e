package collective_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"gorun/collective"
	"gorun/collective/flight"
	"gorun/collective/kernel"
	"gorun/contrib/must"
)

// TestFlight: the recorder has what ended and what waits, with who came when.
func TestFlight(t *testing.T) {
	w := newRealWorld(t, 2, 2, collective.Config{Record: true})
	g := &gang{done: make(chan error, 1), typ: kernel.Float32}
	buffers := [][]byte{make([]byte, 64), make([]byte, 64), make([]byte, 64), make([]byte, 64)}
	const rounds = 3
	for range rounds {
		must.Do(t, w.round(g, buffers))
	}
	last := heard(make(chan error, 2))
	for rank := range 3 { // not the last one
		r := collective.Request{Kind: collective.Barrier, Name: "end", Client: last}
		must.Do(t, w.engines[rank/2].Submit(rank, r))
	}
	for host, e := range w.engines {
		_, all := e.Flight(100)
		if len(all) != rounds+1 {
			t.Fatalf("host %d recorded %d operations, want %d", host, len(all), rounds+1)
		}
		for i, o := range all[:rounds] {
			if o.Outcome != flight.Done || o.KindName() != "allreduce" || o.TypeName() != "float32" || o.Size != 64 || o.Epoch != 1 ||
				o.Number != uint64(i+1) || o.First == 0 || o.Last < o.First || o.Hosts == 0 || int(o.LastHost) != 1-host ||
				o.Began < max(o.Last, o.Hosts) || o.Ended < o.Began || int(o.FirstRank)/2 != host || int(o.LastRank)/2 != host {
				t.Errorf("host %d: %+v", host, o)
			}
			first, ok1 := o.Came(slices.Index(o.Ranks, int(o.FirstRank)))
			last, ok2 := o.Came(slices.Index(o.Ranks, int(o.LastRank)))
			if len(o.Ranks) != 2 || !ok1 || !ok2 || first != 0 || last != time.Duration(o.Last-o.First).Truncate(time.Microsecond) {
				t.Errorf("host %d: ranks %v came after %v and %v: %+v", host, o.Ranks, first, last, o)
			}
		}
		open := all[rounds]
		if open.Outcome != flight.Open || open.Name() != "end" || open.Ended != 0 || fmt.Sprint(open.Missing) == "[]" {
			t.Errorf("host %d: %+v", host, open)
		}
		if host == 1 && (open.Last != 0 || open.FirstRank != 2 || fmt.Sprint(open.Missing[len(open.Missing)-1]) != "{host2 [3]}") {
			t.Errorf("of the host with the missing rank: %+v", open)
		}
		if _, some := e.Flight(2); len(some) != 2 || some[1].Name() != "end" {
			t.Errorf("the latest 2 of host %d are %+v", host, some)
		}
	}
	for host, e := range w.engines {
		counts, open := e.Counts()
		if len(counts) != 1 || open != 1 {
			t.Fatalf("host %d counts %+v, %d open", host, counts, open)
		}
		if c := counts[0]; c.Kind != collective.Allreduce || c.Ended != rounds || c.Failed != 0 || c.Bytes != rounds*64 ||
			c.Waiting <= 0 || c.Running <= 0 {
			t.Errorf("host %d counts %+v", host, c)
		}
	}
	for _, e := range w.engines {
		e.Abort(&collective.Error{Code: collective.CodeAborted, Text: "test"})
	}
	_, all := w.engines[0].Flight(100)
	if o := all[len(all)-1]; o.Outcome != flight.Failed || o.Name() != "end" || o.Ended == 0 {
		t.Errorf("what was given up is %+v", o)
	}
	if counts, open := w.engines[0].Counts(); len(counts) != 2 || open != 0 || counts[1].Kind != collective.Barrier || counts[1].Failed != 1 ||
		counts[1].Waiting <= 0 || counts[1].Running != 0 {
		t.Errorf("with what was given up, it counts %+v, %d open", counts, open)
	}
	if counts, open := collective.New(collective.Config{}).Counts(); counts != nil || open != 0 {
		t.Errorf("an engine that records nothing counts %+v, %d open", counts, open)
	}
	if _, none := collective.New(collective.Config{}).Flight(100); len(none) != 0 {
		t.Errorf("an engine that records nothing has %+v", none)
	}
}

// heard takes how requests end.
type heard chan error

func (h heard) Complete(_ uint64, r collective.Result) {
	select {
	case h <- r.Err:
	default:
	}
}
