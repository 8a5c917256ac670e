package output_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"gorun/contrib/must"
	"gorun/launcher/output"
	"gorun/rendezvous/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// terminal records what is written, and each write.
type terminal struct {
	mu     sync.Mutex
	buf    bytes.Buffer
	writes int
}

func (t *terminal) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.writes++
	return t.buf.Write(b)
}

func (t *terminal) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.buf.String()
}

func finish(t *testing.T, m *output.Mux) {
	t.Helper()
	must.Do(t, m.Finish(context.Background()))
}

var noon = func() time.Time { return time.Date(2026, 6, 5, 12, 0, 0, 0, time.UTC) }

// piece is one Write.
type piece struct {
	rank   int
	stream wire.OutputStream
	text   string
}

func TestMux(t *testing.T) {
	host := func(rank int) string { return fmt.Sprintf("host%d", rank+1) }
	template := func(s string) output.Tag {
		tag, err := output.TemplateTag(s, host)
		must.Do(t, err)
		return tag
	}
	out, errs := wire.Stdout, wire.Stderr
	for _, tt := range []struct {
		name             string
		cfg              output.Config
		pieces           []piece
		wantOut, wantErr string
	}{
		{"tags", output.Config{Ranks: 2, Tag: output.HorovodTag},
			[]piece{{0, out, "hello\n"}, {1, errs, "oops\n"}, {1, out, "a\nb\n"}},
			"[0]<stdout>:hello\n[1]<stdout>:a\n[1]<stdout>:b\n", "[1]<stderr>:oops\n"},
		{"lines stay whole", output.Config{Ranks: 2, Tag: output.HorovodTag},
			[]piece{{0, out, "hel"}, {1, out, "wo"}, {0, out, "lo\n"}, {1, out, "rld\n"}},
			"[0]<stdout>:hello\n[1]<stdout>:world\n", ""},
		{"characters stay whole", output.Config{Ranks: 2, Tag: output.HorovodTag},
			[]piece{{0, out, "\xe2\x82"}, {1, out, "\xc3"}, {0, out, "\xac\n"}, {1, out, "\xa4\n"}},
			"[0]<stdout>:€\n[1]<stdout>:ä\n", ""},
		{"the last line is unfinished", output.Config{Ranks: 2, Tag: output.HorovodTag},
			[]piece{{1, out, "x"}, {0, out, "y"}},
			"[0]<stdout>:y\n[1]<stdout>:x\n", ""},
		{"time", output.Config{Ranks: 2, Tag: output.HorovodTag, Timestamp: true},
			[]piece{{0, out, "hello\n"}},
			"Fri Jun  5 12:00:00 2026[0]<stdout>:hello\n", ""},
		{"template", output.Config{Ranks: 2, Tag: template("{host}:{rank} {{{stream}}| ")},
			[]piece{{0, out, "a\n"}, {1, errs, "b\n"}},
			"host1:0 {stdout}| a\n", "host2:1 {stderr}| b\n"},
		{"no tags", output.Config{Ranks: 2},
			[]piece{{0, out, "a"}, {1, out, "b\r\n"}, {0, out, "a\n10%\r20%\r"}},
			"aa\n10%\rb\r\n20%\r", ""},
		{"an only rank passes as it is", output.Config{Ranks: 2},
			[]piece{{1, out, "\x00\xff\r"}, {1, errs, "name? "}, {1, out, strings.Repeat("x", 2*output.MaxLine)}, {1, out, "\n\r"}},
			"\x00\xff\r" + strings.Repeat("x", 2*output.MaxLine) + "\n\r", "name? "},
		{"so does the only one that is shown", output.Config{Ranks: 2, Show: func(rank int) bool { return rank == 1 }},
			[]piece{{0, out, "hidden\n"}, {1, out, "a\r"}, {0, out, "hidden\n"}, {1, out, "b"}}, "a\rb", ""},
		{"a long line stays whole, and others wait", output.Config{Ranks: 3},
			[]piece{{0, out, "a\n"}, {1, out, "b\n"}, {0, out, strings.Repeat("x", output.MaxLine+1)}, {1, out, "c\n"}, {2, out, "d\r\n"}, {0, out, "y\r"}, {0, out, "\nz\n"}},
			"a\nb\n" + strings.Repeat("x", output.MaxLine+1) + "y\r\nz\nc\nd\r\n", ""},
		{"two long lines, one after the other", output.Config{Ranks: 2},
			[]piece{{1, out, strings.Repeat("x", output.MaxLine+1)}, {0, out, strings.Repeat("y", output.MaxLine+1)}, {1, out, "x\nx\n"}, {1, out, "x\n"}, {0, out, "y\ny\n"}},
			strings.Repeat("x", output.MaxLine+2) + "\nx\n" + strings.Repeat("y", output.MaxLine+2) + "\ny\nx\n", ""},
		{"a carriage return and its line feed stay together", output.Config{Ranks: 2},
			[]piece{{0, out, "a\r"}, {1, out, "b\n"}, {0, out, "\nc\r"}, {1, out, "d\n"}, {0, out, "\n"}},
			"a\r\nb\nd\nc\r\n", ""},
		{"a carriage return alone ends a line", output.Config{Ranks: 2},
			[]piece{{0, out, "1%\r"}, {1, out, "b\n"}, {0, out, "2%\r"}, {0, out, "3%\r"}},
			"1%\rb\n2%\r3%\r", ""},
		{"last lines without an end", output.Config{Ranks: 3},
			[]piece{{0, out, "x"}, {1, out, "y"}, {2, out, "z"}},
			"x\ny\nz", ""},
		{"too much to wait with", output.Config{Ranks: 2},
			[]piece{{0, out, "x"}, {1, out, strings.Repeat("y\n", 8<<20+1)}, {0, out, "x\n"}},
			"x" + strings.Repeat("y\n", 8<<20+1) + "x\n", ""},
		{"one rank's streams merged", output.Config{Ranks: 1, Merge: true},
			[]piece{{0, out, "name"}, {0, errs, "?"}, {0, out, "\n"}}, "name?\n", ""},
		{"one rank, no tags", output.Config{Ranks: 1},
			[]piece{{0, out, "name? "}, {0, out, "\r1%\r\n"}, {0, errs, "x"}},
			"name? \r1%\r\n", "x"},
		{"progress as lines", output.Config{Ranks: 2, Tag: output.HorovodTag},
			[]piece{{0, errs, "\r1%"}, {0, errs, "\r2%"}, {0, errs, "\r3%\n"}},
			"", "[0]<stderr>:1%\n[0]<stderr>:2%\n[0]<stderr>:3%\n"},
		{"progress refreshed", output.Config{Ranks: 2, Tag: output.HorovodTag, Refresh: time.Second},
			[]piece{{0, errs, "\r1%"}, {0, errs, "\r2%"}, {0, errs, "\r3%\r4%\n"}, {1, errs, "1%\r2%\r3%\r"}},
			"", "[0]<stderr>:1%\n[0]<stderr>:4%\n[1]<stderr>:1%\n[1]<stderr>:3%\n"},
		{"DOS lines are lines", output.Config{Ranks: 2, Tag: output.HorovodTag, Refresh: time.Hour},
			[]piece{{0, out, "a\r\nb\r"}, {0, out, "\nc\r\n"}},
			"[0]<stdout>:a\n[0]<stdout>:b\n[0]<stdout>:c\n", ""},
		{"nonsense is ignored", output.Config{Ranks: 2, Tag: output.HorovodTag},
			[]piece{{2, out, "a\n"}, {-1, out, "b\n"}, {0, 7, "c\n"}, {0, out, ""}}, "", ""},
		{"some ranks", output.Config{Ranks: 2, Tag: output.HorovodTag, Show: func(rank int) bool { return rank == 1 }},
			[]piece{{0, out, "a\n"}, {1, out, "b\n"}, {0, errs, "c\r"}}, "[1]<stdout>:b\n", ""},
		{"merged", output.Config{Ranks: 1, Tag: output.HorovodTag, Merge: true},
			[]piece{{0, out, "a\n"}, {0, errs, "b\n"}}, "[0]<stdout>:a\n[0]<stderr>:b\n", ""},
		{"coloured", output.Config{Ranks: 8, Tag: output.HorovodTag, Color: true},
			[]piece{{0, out, "a\n"}, {7, out, "b\n"}}, "\x1b[36m[0]<stdout>:\x1b[0ma\n\x1b[32m[7]<stdout>:\x1b[0mb\n", ""},
		{"JSON", output.Config{Ranks: 1, Tag: output.HorovodTag, JSON: true, Host: host, Timestamp: true, Status: true},
			[]piece{{0, out, "a \"b\"\xff\n"}, {0, errs, "1%\r2%"}},
			`{"event":"output","time":"2026-06-05T12:00:00Z","rank":0,"host":"host1","stream":"stdout","text":"a \"b\"\ufffd"}` + "\n" +
				`{"event":"output","time":"2026-06-05T12:00:00Z","rank":0,"host":"host1","stream":"stderr","text":"1%"}` + "\n" +
				`{"event":"output","time":"2026-06-05T12:00:00Z","rank":0,"host":"host1","stream":"stderr","text":"2%"}` + "\n", ""},
		{"a long line is one line", output.Config{Ranks: 2, Tag: output.HorovodTag},
			[]piece{{0, out, strings.Repeat("x", 150_000)}, {1, out, "b\n"}, {0, out, "yz\n"}},
			"[1]<stdout>:b\n[0]<stdout>:" + strings.Repeat("x", 150_000) + "yz\n", ""},
		{"parts in JSON", output.Config{Ranks: 1, JSON: true},
			[]piece{{0, out, strings.Repeat("x", output.MaxLine)}, {0, out, "yz\n"}},
			`{"event":"output","time":"2026-06-05T12:00:00Z","rank":0,"stream":"stdout","text":"` + strings.Repeat("x", output.MaxLine) + `","part":true}` + "\n" +
				`{"event":"output","time":"2026-06-05T12:00:00Z","rank":0,"stream":"stdout","text":"yz"}` + "\n", ""},
		{"long lines come in parts", output.Config{Ranks: 1, Tag: output.HorovodTag},
			[]piece{{0, out, strings.Repeat("x", output.MaxLine)}, {0, out, "yz\n"}},
			"[0]<stdout>:" + strings.Repeat("x", output.MaxLine) + "\n[0]<stdout>:yz\n", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var stdout, stderr terminal
			tt.cfg.Stdout, tt.cfg.Stderr, tt.cfg.Now = &stdout, &stderr, noon
			m, err := output.New(tt.cfg)
			must.Do(t, err)
			for _, p := range tt.pieces {
				m.Write(p.rank, p.stream, []byte(p.text))
			}
			finish(t, m)
			if stdout.String() != tt.wantOut || stderr.String() != tt.wantErr {
				t.Errorf("stdout %q, want %q\nstderr %q, want %q", stdout.String(), tt.wantOut, stderr.String(), tt.wantErr)
			}
			m.Write(0, out, []byte("too late\n"))
			if err := m.Finish(context.Background()); err != nil || strings.Contains(stdout.String(), "too late") {
				t.Errorf("after Finish: %v, %q", err, stdout.String())
			}
		})
	}
}

// TestUntagged: of what ranks write without tags, cut anywhere and into one file, no byte is changed or lost, and each
// line stays whole.
func TestUntagged(t *testing.T) {
	for seed := range uint64(8) {
		rng := rand.New(rand.NewPCG(seed, 3))
		file, err := os.Create(filepath.Join(t.TempDir(), "both"))
		must.Do(t, err)
		const ranks = 4
		m, err := output.New(output.Config{Ranks: ranks, Stdout: file, Stderr: file})
		must.Do(t, err)
		var text [ranks][]byte // what is left to write
		var lines []string
		for rank := range text {
			for range 40 {
				line := strings.Repeat(string(rune('a'+rank)), rng.IntN(60))
				if rng.IntN(20) == 0 {
					line = strings.Repeat(line, 40_000)
				}
				line += []string{"\n", "\r\n", "\x00\n"}[rng.IntN(3)]
				text[rank], lines = append(text[rank], line...), append(lines, line)
			}
		}
		for left := ranks; left > 0; {
			rank := rng.IntN(ranks)
			if len(text[rank]) == 0 {
				continue
			}
			n := min(1+rng.IntN(1+rng.IntN(200_000)), len(text[rank]))
			m.Write(rank, wire.Stdout+wire.OutputStream(rank%2), text[rank][:n])
			if text[rank] = text[rank][n:]; len(text[rank]) == 0 {
				left--
				if rng.IntN(2) == 0 {
					m.Close(rank)
				}
			}
		}
		finish(t, m)
		written := must.Read(t, file.Name())
		file.Close()
		got := slices.Sorted(strings.Lines(string(written)))
		slices.Sort(lines)
		if !slices.Equal(got, lines) {
			t.Fatalf("seed %d: %d bytes in %d lines where %d lines were written", seed, len(written), len(got), len(lines))
		}
	}
}

func TestTemplateErrors(t *testing.T) {
	for _, s := range []string{"{rnk}", "{rank", "{}", "x{rank}{"} {
		if _, err := output.TemplateTag(s, nil); err == nil || !strings.Contains(err.Error(), "none of {rank}") {
			t.Errorf("%q: %v", s, err)
		}
	}
}

// TestOrder: lines of both streams reach one terminal in the order in which they were written.
func TestOrder(t *testing.T) {
	var tty terminal
	m, err := output.New(output.Config{Ranks: 2, Stdout: &tty, Stderr: writer{&tty}, Tag: output.HorovodTag})
	must.Do(t, err)
	var want strings.Builder
	for i := range 1000 {
		stream := wire.Stdout + wire.OutputStream(i/3%2)
		line := fmt.Sprintf("line %d\n", i)
		m.Write(i%2, stream, []byte(line))
		want.WriteString(output.HorovodTag(i%2, stream) + line)
	}
	finish(t, m)
	if tty.String() != want.String() {
		t.Error("lines out of order")
	}
}

type writer struct{ io.Writer }

// TestManyRanks: 64 ranks write at once, cut anywhere; every line arrives whole and in its rank's order,
// in far fewer writes than lines.
func TestManyRanks(t *testing.T) {
	const ranks, lines = 64, 500
	stdout := &terminal{}
	m, err := output.New(output.Config{Ranks: ranks, Stdout: stdout, Stderr: io.Discard, Tag: output.HorovodTag, Dir: t.TempDir()})
	must.Do(t, err)
	var wg sync.WaitGroup
	for rank := range ranks {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(rank), 2))
			var text []byte
			for i := range lines {
				text = fmt.Appendf(text, "%d %s\n", i, strings.Repeat("äö", rng.IntN(40)))
			}
			for len(text) > 0 {
				n := min(1+rng.IntN(300), len(text))
				m.Write(rank, wire.Stdout, text[:n])
				text = text[n:]
			}
			m.Close(rank)
		})
	}
	wg.Wait()
	finish(t, m)
	next := make([]int, ranks)
	for line := range strings.Lines(stdout.String()) {
		var rank, i int
		if n, err := fmt.Sscanf(line, "[%d]<stdout>:%d ", &rank, &i); n != 2 || err != nil {
			t.Fatalf("torn line %q", line)
		}
		if rest := strings.TrimSpace(line[strings.IndexByte(line, ' '):]); strings.ReplaceAll(rest, "äö", "") != "" {
			t.Fatalf("torn line %q", line)
		}
		if next[rank] != i {
			t.Fatalf("rank %d: line %d where %d was due", rank, i, next[rank])
		}
		next[rank]++
	}
	if i := slices.IndexFunc(next, func(n int) bool { return n != lines }); i >= 0 {
		t.Errorf("%d lines of rank %d", next[i], i)
	}
}

// TestDiverted: streams that go to files, one of them for several ranks, do not show; what one rank writes there is as
// it is.
func TestDiverted(t *testing.T) {
	var stdout, stderr terminal
	dir := filepath.Join(t.TempDir(), "new")
	m, err := output.New(output.Config{Ranks: 2, Stdout: &stdout, Stderr: &stderr, Tag: output.HorovodTag, JSON: true, Show: func(int) bool { return false },
		Divert: func(rank int, name wire.OutputStream) string {
			if name == wire.Stderr {
				return ""
			}
			return filepath.Join(dir, fmt.Sprint("out.", rank/2))
		}})
	must.Do(t, err)
	must.Do(t, m.Add(2))
	m.Write(0, wire.Stdout, []byte("a"))
	m.Write(1, wire.Stdout, []byte("b\r\n"))
	m.Write(2, wire.Stdout, []byte("\x00"))
	m.Write(0, wire.Stdout, []byte("a\n"))
	m.Write(0, wire.Stderr, []byte("hidden\n"))
	finish(t, m)
	for name, want := range map[string]string{"out.0": "aa\nb\r\n", "out.1": "\x00"} {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != want {
			t.Errorf("%s holds %q, %v, want %q", name, got, err, want)
		}
	}
	if stdout.String()+stderr.String() != "" {
		t.Errorf("stdout %q, stderr %q", stdout.String(), stderr.String())
	}
}

func TestFiles(t *testing.T) {
	for _, tt := range []struct {
		ranks int
		last  string
	}{{1, "rank.0"}, {2, "rank.1"}, {10, "rank.9"}, {11, "rank.10"}, {100, "rank.99"}, {101, "rank.100"}} {
		dir := filepath.Join(t.TempDir(), "new", "dir")
		m, err := output.New(output.Config{Ranks: tt.ranks, Stdout: io.Discard, Stderr: io.Discard, Tag: output.HorovodTag, Dir: dir})
		must.Do(t, err)
		m.Write(tt.ranks-1, wire.Stdout, []byte("as it\r is"))
		m.Close(tt.ranks - 1)
		m.Write(tt.ranks-1, wire.Stdout, []byte(", again\n"))
		m.Write(tt.ranks-1, wire.Stderr, []byte("oops\n"))
		finish(t, m)
		for name, want := range map[string]string{"stdout": "as it\r is, again\n", "stderr": "oops\n"} {
			got, err := os.ReadFile(filepath.Join(dir, tt.last, name))
			if err != nil || string(got) != want {
				t.Errorf("%d ranks: %s holds %q, %v, want %q", tt.ranks, name, got, err, want)
			}
		}
		first := "rank." + strings.Repeat("0", len(tt.last)-len("rank."))
		if got, err := os.ReadFile(filepath.Join(dir, first, "stderr")); err != nil || tt.ranks > 1 && len(got) > 0 {
			t.Errorf("%d ranks: %s/stderr holds %q, %v", tt.ranks, first, got, err)
		}
	}

	dir := t.TempDir()
	must.Do(t, os.WriteFile(filepath.Join(dir, "rank.1"), nil, 0o666))
	_, err := output.New(output.Config{Ranks: 2, Dir: dir})
	if err == nil || !strings.Contains(err.Error(), "make output directory: mkdir "+dir+"/rank.1") {
		t.Errorf("a file is in the way: %v", err)
	}
}

func TestTail(t *testing.T) {
	m, err := output.New(output.Config{Ranks: 2, Stdout: io.Discard, Stderr: io.Discard, Tag: output.HorovodTag})
	must.Do(t, err)
	if got := m.Tail(0); len(got) != 0 {
		t.Errorf("before anything: %q", got)
	}
	m.Write(0, wire.Stdout, []byte("not this\n"))
	m.Write(0, wire.Stderr, []byte(strings.Repeat("0\n", 17)+"1\n2\n\r10%\r20%\r30%\n4\nlast"))
	m.Write(1, wire.Stderr, []byte(strings.Repeat("ä", 10000)+"\n"))
	if got, want := m.Tail(0), []string{"1", "2", "30%", "4"}; len(got) != 20 || !slices.Equal(got[16:], want) {
		t.Errorf("tail %q, want %q", got, want)
	}
	m.Close(0)
	if got, want := m.Tail(0), []string{"2", "30%", "4", "last"}; len(got) != 20 || !slices.Equal(got[16:], want) {
		t.Errorf("tail %q, want %q", got, want)
	}
	if got := m.Tail(1); len(got) != 1 || len(got[0]) > 5000 || !strings.HasSuffix(got[0], "ä…") {
		t.Errorf("a long line: %d, %d bytes", len(got), len(got[0]))
	}
	if m.Tail(9) != nil {
		t.Error("tail of no rank")
	}
	finish(t, m)
}

func TestStatus(t *testing.T) {
	const erase = "\r\x1b[K"
	var stdout, stderr terminal
	m, err := output.New(output.Config{Ranks: 2, Stdout: &stdout, Stderr: &stderr, Tag: output.HorovodTag, Status: true})
	must.Do(t, err)
	// Each step waits for its drawing: states that follow too closely on each other are skipped.
	want := ""
	step := func(do func(), drawn string) {
		t.Helper()
		do()
		want += drawn
		must.Soon(t, fmt.Sprintf("%q after %q", drawn, stderr.String()), func() bool { return stderr.String() == want })
	}
	step(func() { m.Status("one") }, "one")
	step(func() { m.Status("one") }, "")
	step(func() { m.Status("two") }, erase+"two")
	var resume func()
	step(func() { resume = m.Pause() }, erase)
	if got := stderr.String(); got != want {
		t.Errorf("the status line is there while somebody asks: %q", got)
	}
	step(func() { m.Status("two and a half") }, "")
	step(func() { m.Status("two") }, "")
	step(func() { resume() }, "two")
	step(func() { m.Note("gorun: %s", "a note\x1b[2J") }, erase+"gorun: a note\ntwo")
	step(func() { m.Write(0, wire.Stdout, []byte("unfinished")) }, erase)
	step(func() { m.Status("three") }, "")
	step(func() { m.Note("late") }, "late\n")
	finish(t, m)
	if stderr.String() != want || stdout.String() != "[0]<stdout>:unfinished\n" {
		t.Errorf("%q %q", stdout.String(), stderr.String())
	}

	var plain terminal
	m, err = output.New(output.Config{Ranks: 1, Stdout: io.Discard, Stderr: &plain})
	must.Do(t, err)
	m.Status("one")
	finish(t, m)
	if plain.String() != "" {
		t.Errorf("a status where none was wanted: %q", plain.String())
	}
}

// blocked is a terminal that takes nothing until it is released.
type blocked struct{ release chan struct{} }

func (b blocked) Write(p []byte) (int, error) { <-b.release; return len(p), nil }

// TestSlowTerminal: what comes faster than the terminal takes it waits, in bounded memory, and nothing else does; who
// gives up gets away.
func TestSlowTerminal(t *testing.T) {
	tty := blocked{make(chan struct{})}
	m, err := output.New(output.Config{Ranks: 1, Stdout: tty, Stderr: io.Discard})
	must.Do(t, err)
	var mu sync.Mutex
	written := 0
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for range 1000 {
			m.Write(0, wire.Stdout, make([]byte, 32<<10))
			mu.Lock()
			written += 32 << 10
			mu.Unlock()
		}
	}()
	count := func() int { mu.Lock(); defer mu.Unlock(); return written }
	must.Soon(t, "the queue is full", func() bool { return count() >= 4<<20 })
	if n := count(); n > 9<<20 { // one batch under way, one queued
		t.Errorf("%d bytes taken by a terminal that takes none", n)
	}
	m.Note("a note") // nothing of this waits
	m.Tail(0)
	m.Close(0)
	ctx, cancel := context.WithCancelCause(context.Background())
	reason := errors.New("no patience")
	cancel(reason)
	if err := m.Finish(ctx); !errors.Is(err, reason) {
		t.Errorf("Finish: %v", err)
	}
	<-ended
	close(tty.release)
}

// TestHurry: a job that ends hears its daemons although nobody reads. What waits has a bound, and what is lost is told.
func TestHurry(t *testing.T) {
	var b bytes.Buffer
	tty := gated{make(chan struct{}), &b}
	m := tty.mux(t)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for range 40 {
			m.Write(0, wire.Stderr, mebibyte)
		}
	}()
	m.Hurry()
	<-ended
	close(tty.release)
	must.Do(t, m.Finish(t.Context()))
	if n := b.Len(); n < 16<<20 || n > 34<<20 { // one batch under way, one queued
		t.Errorf("%d bytes of 40 MiB were kept", n)
	}
	if m.Taken() != b.Len() {
		t.Errorf("%d bytes taken, %d counted", b.Len(), m.Taken())
	}
	if all := b.Bytes(); !bytes.Contains(all, []byte("KiB of output are lost here: nobody read it\n")) {
		t.Error("no word of what was lost")
	}
}

// gated is a terminal that takes nothing until it is released.
type gated struct {
	release chan struct{}
	to      io.Writer
}

func (g gated) Write(p []byte) (int, error) { <-g.release; return g.to.Write(p) }

// mux returns a Mux that writes all it shows there.
func (g gated) mux(t *testing.T) *output.Mux {
	t.Helper()
	m, err := output.New(output.Config{Ranks: 1, Stdout: g, Stderr: g, Tag: output.HorovodTag})
	must.Do(t, err)
	return m
}

// mebibyte is a long line.
var mebibyte = append(bytes.Repeat([]byte("x"), 1<<20-1), '\n')

func TestReport(t *testing.T) {
	var b strings.Builder
	r := output.Report{W: &b}
	r.Errorf("%s: %v", "host1", errors.New("first line\nsecond\x1b]0;title\x07 \x1b[31mred\x1b[0m\r"))
	r.Hintf("try again")
	r.Lines(output.HostTable([][3]string{{"h1", "connect", "connection refused"}, {"höst22", "login", "key refused\n"}}))
	r.Lines(output.TailLines(3, []string{"Traceback:", "  \tin main", "\x1b[1mbold\x1b[m \xff"}))
	r.Lines(output.TailLines(4, nil))
	want := `gorun: error: host1: first line second red
gorun: hint: try again
    HOST    STEP     REASON
    h1      connect  connection refused
    höst22  login    key refused
gorun: the last lines rank 3 wrote to standard error:
    Traceback:
       in main
    bold �
`
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

// fullDisk takes nothing.
type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// TestFullDisk: a note reports at once, and once, that output is lost, and the Mux ends with that error.
func TestFullDisk(t *testing.T) {
	var stderr terminal
	dir := t.TempDir()
	m, err := output.New(output.Config{Ranks: 2, Tag: output.HorovodTag, Dir: dir, Stdout: fullDisk{}, Stderr: &stderr})
	must.Do(t, err)
	for range 3 {
		m.Write(1, wire.Stdout, []byte("a\n"))
	}
	want := "gorun: write output: no space left on device; what ranks write is lost while that is so, the job goes on\n"
	for end := time.Now().Add(10 * time.Second); stderr.String() == "" && time.Now().Before(end); time.Sleep(time.Millisecond) {
	}
	m.Write(1, wire.Stdout, []byte("b\n"))
	if err := m.Finish(t.Context()); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("Finish: %v, not ENOSPC", err)
	}
	if got := stderr.String(); got != want {
		t.Errorf("standard error is %q, not %q", got, want)
	}
	if b, _ := os.ReadFile(filepath.Join(dir, "rank.1", "stdout")); string(b) != "a\na\na\nb\n" {
		t.Errorf("the rank's file has %q", b)
	}
}

// TestStatusGoes: an end without output takes the status line away too.
func TestStatusGoes(t *testing.T) {
	var stderr terminal
	m, err := output.New(output.Config{Ranks: 1, Stdout: io.Discard, Stderr: &stderr, Status: true})
	must.Do(t, err)
	m.Status("one")
	must.Soon(t, "status", func() bool { return stderr.String() == "one" })
	must.Do(t, m.Finish(t.Context()))
	if stderr.String() != "one\r\x1b[K" {
		t.Errorf("%q", stderr.String())
	}
}

// TestFullDiskOfFiles: so is that a rank's file stays as it is, while the terminal goes on.
func TestFullDiskOfFiles(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("this system has no /dev/full")
	}
	dir := t.TempDir()
	must.Do(t, os.Mkdir(filepath.Join(dir, "rank.0"), 0o755))
	must.Do(t, os.Symlink("/dev/full", filepath.Join(dir, "rank.0", "stdout")))
	var stdout, stderr terminal
	m, err := output.New(output.Config{Ranks: 1, Tag: output.HorovodTag, Dir: dir, Stdout: &stdout, Stderr: &stderr})
	must.Do(t, err)
	m.Write(0, wire.Stdout, []byte("a\n"))
	m.Write(0, wire.Stdout, []byte("b\n"))
	if err := m.Finish(t.Context()); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("Finish: %v, not ENOSPC", err)
	}
	if got, want := stdout.String(), "[0]<stdout>:a\n[0]<stdout>:b\n"; got != want {
		t.Errorf("standard output is %q, not %q", got, want)
	}
	if got := stderr.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "no space left on device; the file of rank 0 stays as it is from here on") {
		t.Errorf("standard error is %q", got)
	}
}
