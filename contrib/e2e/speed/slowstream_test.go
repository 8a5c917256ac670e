package speed

import (
	"strconv"
	"testing"
	"time"

	"gorun/contrib/e2e/e2etest"
	"gorun/contrib/must"
)

// TestSlowStream: one connection of four that is far slower than the others, whichever it is, does not set the pace: it
// rests once that is known, and is tried again now and then, which costs single batches. The weights are those of an
// undisturbed job.
func TestSlowStream(t *testing.T) {
	slow := 4
	if testing.Short() {
		slow = 2
	}
	const phase = 20 // batches
	batches := 2 * slow * phase
	const (
		rows    = 2048    // 2 MiB of weights, which are several segments for each stream
		rate    = 4 << 20 // bit/s; a segment takes half a second
		delayed = 300 * time.Millisecond
	)
	c := e2etest.NewClusterAlone(t, 2)
	train := func() *e2etest.Descent {
		return &e2etest.Descent{Training: c.Follow("-v", "-H", "host1:1,host2:1", e2etest.Python, "testdata/resilience/descend.py",
			"--batches", strconv.Itoa(batches), "--rows", strconv.Itoa(rows))}
	}
	want := train().Weights()
	d := train()
	began := time.Now()
	d.Reach(phase)
	usual := e2etest.Median(d.Intervals(began, time.Now()))
	conns, err := c.Host(1).Connections()
	must.Do(t, err)
	if len(conns) < 4 {
		t.Fatalf("there are only the connections %v", conns)
	}
	for i, conn := range conns[:slow] {
		must.Do(t, c.Host(1).Slow(conn, rate))
		began := time.Now()
		passed, _ := d.Out.Find(`batch \d+$`)
		last := len(passed) + phase + 1 // one may have ended meanwhile
		if last > batches {
			t.Fatalf("batch %d is over before connection %d of %d was slow", len(passed), i+1, len(conns))
		}
		d.Reach(last)
		late := 0
		list := d.Intervals(began, time.Now())
		for _, took := range list {
			if took > usual+delayed {
				late++
			}
		}
		t.Logf("a batch took %v; with connection %d of %d slow %v, and %d of %d were late, by %v at most", usual.Round(time.Millisecond), i+1, len(conns),
			e2etest.Median(list).Round(time.Millisecond), late, len(list), (list[len(list)-1] - usual).Round(time.Millisecond))
		if late > phase/3 { // 2 or 3, and all of them if the stream goes on taking its part
			t.Errorf("%d of %d batches were late with connection %d of %d slow", late, len(list), i+1, len(conns))
		}
	}
	d.ExpectWeights(want)
}
