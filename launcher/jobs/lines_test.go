package jobs_test

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"gorun/contrib/must"
	"gorun/launcher/jobs"
)

func TestRecorder(t *testing.T) {
	var r jobs.Recorder
	r.Write(0, false, []byte("a\nb"))
	r.Write(1, true, []byte("error\x1b[2J\r\n"))
	r.Write(0, false, []byte("c\n\n"))
	r.Write(0, false, []byte(strings.Repeat("x", 5000)))
	r.Write(0, false, []byte("y\n\xff\n"))
	got := r.After(0)
	want := []jobs.Line{{Text: "a"}, {Rank: 1, Error: true, Text: "error?[2J"}, {Text: "bc"}, {}, {Text: strings.Repeat("x", 1024)}, {Text: "�"}}
	if fmt.Sprint(got.Lines) != fmt.Sprint(want) || got.Next != 6 {
		t.Errorf("%+v", got)
	}
	if more := r.After(5); len(more.Lines) != 1 || more.Next != 6 {
		t.Errorf("%+v", more)
	}
	if none := r.After(6); len(none.Lines) != 0 || none.Next != 6 {
		t.Errorf("%+v", none)
	}
}

// TestRecorderKeepsTheLast: its memory is bounded, and who looks seldom misses lines but sees none twice.
func TestRecorderKeepsTheLast(t *testing.T) {
	var r jobs.Recorder
	for i := range 10000 {
		r.Write(i%4, false, fmt.Appendf(nil, "%d\n", i))
	}
	seen, next := 0, int64(0)
	for {
		got := r.After(next)
		if len(got.Lines) == 0 {
			break
		}
		for i, l := range got.Lines {
			if want := fmt.Sprint(int(got.Next) - len(got.Lines) + i); l.Text != want {
				t.Fatalf("line %s, want %s", l.Text, want)
			}
		}
		seen, next = seen+len(got.Lines), got.Next
	}
	if seen != 2000 || next != 10000 {
		t.Errorf("%d lines up to %d", seen, next)
	}
	for _, after := range []int64{-1, 20000} {
		if got := r.After(after); len(got.Lines) != 500 || got.Lines[499].Text != "9999" {
			t.Errorf("after %d: %d lines", after, len(got.Lines))
		}
	}
}

// TestRecorderKeepsLittle: a line that is kept does not keep the rest of what came with it.
func TestRecorderKeepsLittle(t *testing.T) {
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	var r jobs.Recorder
	before := heap()
	chunk := append(bytes.Repeat([]byte("x"), 32<<10), '\n')
	for range 2000 {
		r.Write(0, false, chunk)
	}
	if more := heap() - before; more > 16<<20 {
		t.Errorf("%d lines of 1 KiB take %d MiB", 2000, more>>20)
	}
	if got := r.After(-1); len(got.Lines) != 500 || len(got.Lines[0].Text) != 1024 {
		t.Errorf("%d lines", len(got.Lines))
	}
}

// TestLongUnfinishedLine: more of a line that is kept no further costs nothing.
func TestLongUnfinishedLine(t *testing.T) {
	var r jobs.Recorder
	dots := bytes.Repeat([]byte("."), 1<<17)
	r.Write(0, false, dots)
	if n := testing.AllocsPerRun(100, func() { r.Write(0, false, dots[:1]) }); n > 0 {
		t.Errorf("a byte more of a long line: %v allocations", n)
	}
	r.Write(0, false, []byte("\rthe end\n"))
	if got := r.After(0); len(got.Lines) != 1 || got.Lines[0].Text != "the end" {
		t.Errorf("kept %+v", got)
	}
}

// TestEndsOfOutput: a failed job leaves the end of each rank's output, however much others write, in lines.
func TestEndsOfOutput(t *testing.T) {
	var e jobs.Recorder
	e.Keep()
	e.Write(0, true, []byte("the reason, in "))
	e.Write(1, false, []byte("10%\r20%\r"))
	e.Write(0, true, []byte("two pieces\r\n"))
	line := []byte(strings.Repeat("x", 99) + "\n")
	for range 20000 {
		e.Write(2, false, line)
	}
	e.Write(2, false, []byte("no end"))
	job := jobs.Job{Dir: t.TempDir()}
	must.Do(t, job.Leave(&e, "it failed"))
	b, _ := os.ReadFile(job.Output())
	text := string(b)
	if !strings.HasPrefix(text, "[0]<stderr>:the reason, in two pieces\n[2]<stdout>:xxx") ||
		!strings.Contains(text, "\n[1]<stdout>:20%\n") || !strings.Contains(text, "\n[2]<stdout>:no end\n") ||
		!strings.HasSuffix(text, "\ngorun: error: it failed\n") {
		t.Errorf("%.60s … %s", text, text[len(text)-120:])
	}
	if len(text) < 500<<10 || len(text) > 1300<<10 {
		t.Errorf("%d bytes", len(text))
	}
	for rank := range 100 {
		for range 15 {
			e.Write(rank, false, append(bytes.Repeat([]byte("y"), 60<<10), '\n'))
		}
	}
	must.Do(t, job.Leave(&e, ""))
	if info, _ := os.Stat(job.Output()); info.Size() < 50<<20 || info.Size() > 64<<20 || info.Mode() != 0o600 {
		t.Errorf("%d bytes, %v", info.Size(), info.Mode())
	}
}
