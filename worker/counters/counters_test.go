package counters_test

import (
	"encoding/binary"
	"os"
	"testing"
	"time"

	"gorun/contrib/must"
	"gorun/worker/counters"
)

func page(values map[int]time.Duration) []byte {
	b := make([]byte, counters.Size)
	for at, v := range values {
		binary.LittleEndian.PutUint64(b[at:], uint64(v))
	}
	return b
}

func TestDecode(t *testing.T) {
	const s = time.Second
	b := page(map[int]time.Duration{counters.AtBegan: 100 * s, counters.AtSteps: 7, counters.AtStepTime: 2 * s,
		counters.AtData: 3 * s, counters.AtOthers: s, counters.AtCommunication: 4 * s, counters.AtHidden: 2 * s,
		counters.AtOperations: 9, counters.AtActivity: time.Duration(counters.WaitingForData), counters.AtSince: 119 * s})
	got := counters.Decode(b, 120*s)
	want := counters.Counts{Elapsed: 20 * s, Steps: 7, Step: 2 * s, Data: 4 * s, Others: s, Communication: 4 * s,
		Hidden: 2 * s, Operations: 9, Activity: counters.WaitingForData, For: s}
	if got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// TestStrange: what a rank writes is bounded by the time since it began.
func TestStrange(t *testing.T) {
	const s = time.Second
	for name, b := range map[string][]byte{
		"nothing":           nil,
		"zeros":             make([]byte, counters.Size),
		"began in future":   page(map[int]time.Duration{counters.AtBegan: 200 * s, counters.AtSteps: 1}),
		"half a page":       page(map[int]time.Duration{counters.AtBegan: s})[:100],
		"began before time": page(map[int]time.Duration{counters.AtBegan: -s, counters.AtSteps: 1}),
	} {
		if got := counters.Decode(b, 120*s); got != (counters.Counts{}) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	got := counters.Decode(page(map[int]time.Duration{counters.AtBegan: 100 * s, counters.AtData: 1 << 62,
		counters.AtOthers: -1, counters.AtActivity: 77, counters.AtSince: 1}), 120*s)
	if got.Data != 20*s || got.Others != 20*s || got.Activity != counters.Computing || got.For != 0 {
		t.Errorf("%+v", got)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(page(map[int]time.Duration{counters.AtBegan: 1, counters.AtData: 5}), int64(10))
	f.Fuzz(func(t *testing.T, b []byte, now int64) {
		c := counters.Decode(b, time.Duration(now))
		for _, d := range []time.Duration{c.Elapsed, c.Data, c.Others, c.Communication, c.Hidden, c.Step} {
			if d < 0 || d > max(c.Elapsed, 0) {
				t.Errorf("%v of %v", d, c.Elapsed)
			}
		}
	})
}

// TestPage: another process of the user writes by the path what this one reads.
func TestPage(t *testing.T) {
	p, err := counters.NewPage()
	must.Do(t, err)
	defer p.Close()
	if got := p.Read(); got != (counters.Counts{}) {
		t.Errorf("a new page holds %+v", got)
	}
	f, err := os.OpenFile(p.Path(), os.O_RDWR, 0)
	must.Do(t, err)
	defer f.Close()
	if _, err := f.WriteAt(page(map[int]time.Duration{counters.AtBegan: 1, counters.AtSteps: 3}), 0); err != nil {
		t.Fatal(err)
	}
	if got := p.Read(); got.Steps != 3 || got.Elapsed <= 0 {
		t.Errorf("%+v", got)
	}
	if err := f.Truncate(0); err == nil {
		t.Error("the page was shrunk")
	}
}

// TestWriter: what a rank in Go counts arrives in the page, and waits are parted as those of other bindings.
func TestWriter(t *testing.T) {
	p, err := counters.NewPage()
	must.Do(t, err)
	defer p.Close()
	w, err := counters.Open(p.Path())
	must.Do(t, err)
	defer w.Close()
	began := w.Waits()
	if got := p.Read(); got.Activity != counters.WaitingInGorun || got.Operations != 0 {
		t.Errorf("while it waits: %+v", got)
	}
	for p.Read().Elapsed < 2*time.Millisecond {
		time.Sleep(time.Millisecond)
	}
	w.Waited(began, time.Millisecond)
	w.Waited(w.Waits(), time.Hour)
	got := p.Read()
	if got.Activity != counters.Computing || got.Operations != 2 || got.Communication < time.Millisecond || got.Others < time.Millisecond ||
		got.Hidden < got.Elapsed { // bounded by what has passed
		t.Errorf("%+v", got)
	}
	began = w.Waits()
	time.Sleep(time.Millisecond)
	w.Missed(began)
	missed := p.Read()
	began = w.Waits()
	time.Sleep(time.Millisecond)
	w.Moved(began)
	moved := p.Read()
	if missed.Others-got.Others < time.Millisecond || missed.Communication != got.Communication ||
		moved.Communication-missed.Communication < time.Millisecond || moved.Others != missed.Others ||
		moved.Operations != 2 || moved.Activity != counters.Computing { // the operations are counted elsewhere
		t.Errorf("%+v, then %+v, then %+v", got, missed, moved)
	}
	none, err := counters.Open("")
	must.Do(t, err)
	none.Waited(none.Waits(), 0)
	none.Missed(none.Waits())
	none.Moved(none.Waits())
	if _, err := counters.Open("/nonexistent"); err == nil {
		t.Error("a page that is not there was opened")
	}
}
