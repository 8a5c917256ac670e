package jobs_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"gorun/contrib/must"
	"gorun/launcher/jobs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func create(t *testing.T, s jobs.Store, r jobs.Record) (jobs.Job, *os.File) {
	t.Helper()
	j, lock, err := s.Create(r)
	must.Do(t, err)
	t.Cleanup(func() { lock.Close() })
	return j, lock
}

func TestStore(t *testing.T) {
	s := jobs.Store{Dir: filepath.Join(t.TempDir(), "jobs")}
	if all, err := s.List(); err != nil || len(all) != 0 {
		t.Fatalf("%v, %v", all, err)
	}
	now := time.Now()
	first, lock := create(t, s, jobs.Record{Program: "a", Started: now})
	second, _ := create(t, s, jobs.Record{Program: "b", Started: now})
	if _, r, err := s.Find("", true); err != nil || r.ID != 2 || r.State != jobs.Running {
		t.Errorf("the last running job: %+v, %v", r, err)
	}
	lock.Close() // as a kill does
	if r, err := first.Load(); err != nil || r.State != jobs.Lost {
		t.Errorf("a job whose launcher was killed: %+v, %v", r, err)
	}
	must.Do(t, second.Save(jobs.Record{ID: 2, Program: "b", Started: now, Ended: now, Code: 7}))
	if _, r, err := s.Find("2", false); err != nil || r.State != jobs.Ended || r.Code != 7 {
		t.Errorf("%+v, %v", r, err)
	}
	if _, _, err := s.Find("", true); !errors.Is(err, jobs.ErrIdle) {
		t.Errorf("a running job: %v", err)
	}
	if _, _, err := s.Find("../x", false); err == nil {
		t.Error("a path is no number")
	}
	// After a month it is forgotten, and its number is not used again.
	must.Do(t, second.Save(jobs.Record{ID: 2, Started: now, Ended: now.Add(-31 * 24 * time.Hour)}))
	create(t, s, jobs.Record{Started: now})
	all, err := s.List()
	if err != nil || len(all) != 2 || all[0].ID != 1 || all[1].ID != 3 {
		t.Errorf("%+v, %v", all, err)
	}
	for _, path := range []string{s.Dir, second.Dir} {
		if info, err := os.Stat(path); err == nil && info.Mode().Perm() != 0o700 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
	}
}

// TestNoAnswer: a launcher that is stopped accepts connections, because the kernel does, and answers nothing.
func TestNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		defer there.Close()
		go io.Copy(io.Discard, there)
		j := jobs.Job{Dial: func(context.Context) (net.Conn, error) { return here, nil }}
		began := time.Now()
		err := j.Signal(t.Context(), 15, "me@here")
		if err == nil || !strings.HasPrefix(err.Error(), "ask the job's launcher: it has not answered for 10s; is it stopped") || time.Since(began) != 10*time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}

// TestOtherVersion: a launcher that answers in another form is named as such, and can be stopped.
func TestOtherVersion(t *testing.T) {
	j := jobs.Job{Dial: func(context.Context) (net.Conn, error) {
		here, there := net.Pipe()
		go func() {
			there.Read(make([]byte, 1000))
			io.WriteString(there, `{"state":{},"code":0}`)
			there.Close()
		}()
		return here, nil
	}}
	if _, err := j.Status(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "the job's launcher is of another version of gorun") {
		t.Error(err)
	}
	if _, err := j.Drain(t.Context(), "h", false, false); err == nil || !strings.HasSuffix(err.Error(), "; it may have carried out the order") {
		t.Error(err)
	}
	must.Do(t, j.Signal(t.Context(), 15, "me@here"))
}

// TestDescriptorsRunOut: a launcher that cannot accept a client for now answers it later.
func TestDescriptorsRunOut(t *testing.T) {
	j, _ := create(t, jobs.Store{Dir: t.TempDir()}, jobs.Record{})
	server, err := j.Serve(func(context.Context, jobs.Request) (any, error) {
		return jobs.State{Ranks: []jobs.RankStatus{{Rank: 7}}}, nil
	})
	must.Do(t, err)
	defer server.End(0)
	next, err := os.Open(os.DevNull)
	must.Do(t, err)
	number := uint64(next.Fd())
	next.Close()
	var usual unix.Rlimit
	must.Do(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &usual))
	j.Dial = func(ctx context.Context) (net.Conn, error) {
		few := unix.Rlimit{Cur: number + 1, Max: usual.Max} // room for the client's end alone
		must.Do(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &few))
		defer time.AfterFunc(100*time.Millisecond, func() { unix.Setrlimit(unix.RLIMIT_NOFILE, &usual) })
		return j.Connect(ctx)
	}
	if all, err := j.Status(t.Context()); err != nil || len(all.Ranks) != 1 || all.Ranks[0].Rank != 7 {
		t.Errorf("%v, %v", all, err)
	}
}

func TestControl(t *testing.T) {
	j, _ := create(t, jobs.Store{Dir: filepath.Join(t.TempDir(), "j")}, jobs.Record{})
	far, _ := create(t, jobs.Store{Dir: filepath.Join(t.TempDir(), strings.Repeat("j", 100))}, jobs.Record{})
	if s, err := far.Serve(nil); err == nil || !strings.HasSuffix(err.Error(), ": the path is too long for a socket; set XDG_STATE_HOME to a shorter one") {
		t.Errorf("a long path: %v, %v", s, err)
	}
	signals := make(chan int, 1)
	s, err := j.Serve(func(_ context.Context, r jobs.Request) (any, error) {
		switch {
		case r.Do == "state":
			return jobs.State{Ranks: []jobs.RankStatus{{Rank: 0, Host: "h", State: "runs", RSS: 5}}}, nil
		case r.Signal != 15 || r.By != "me@here":
			return nil, errors.New("not that one")
		}
		signals <- r.Signal
		return nil, nil
	})
	must.Do(t, err)
	socket := filepath.Join(j.Dir, "control")
	if info, err := os.Stat(socket); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("socket: %v, %v", info, err)
	}
	if s, err := j.Status(t.Context()); err != nil || len(s.Ranks) != 1 || s.Ranks[0].RSS != 5 {
		t.Errorf("state: %+v, %v", s, err)
	}
	if err := j.Signal(t.Context(), 15, "me@here"); err != nil || <-signals != 15 {
		t.Errorf("signal: %v", err)
	}
	if err := j.Signal(t.Context(), 9, ""); err == nil || !strings.Contains(err.Error(), "not that one") {
		t.Errorf("signal: %v", err)
	}
	for request, want := range map[string]string{ // of earlier clients
		`{"do":"state"}`: "is of another version of gorun than this command, which can only stop and follow the job",
		`{"do":"signal","signal":15,"by":"me@here"}`: `{"is":null,"code":0}`,
	} {
		conn, err := net.Dial("unix", socket)
		must.Do(t, err)
		io.WriteString(conn, request+"\n")
		if got, err := io.ReadAll(conn); err != nil || !strings.Contains(string(got), want) {
			t.Errorf("%s: %s, %v", request, got, err)
		}
		conn.Close()
	}
	<-signals
	for _, bad := range []string{"{\n", "{\"do\":\"dance\"}\n", strings.Repeat("x", 10000), ""} {
		conn, err := net.Dial("unix", socket)
		must.Do(t, err)
		conn.Write([]byte(bad))
		conn.Close()
	}
	code := make(chan int)
	go func() {
		n, err := j.Wait(t.Context())
		must.Report(t, err)
		code <- n
	}()
	// The end may come before the question: then the record has it, which is written first.
	must.Do(t, j.Save(jobs.Record{Ended: time.Now(), Code: 7}))
	ended := make(chan struct{})
	go func() { s.End(7); close(ended) }()
	if n := <-code; n != 7 {
		t.Errorf("exit status %d", n)
	}
	<-ended
	if _, err := os.Stat(socket); err == nil {
		t.Error("the socket is still there")
	}
}

// TestTail: a job's output is read from its last lines on, and to what it wrote last.
func TestTail(t *testing.T) {
	j, lock := create(t, jobs.Store{Dir: filepath.Join(t.TempDir(), "jobs")}, jobs.Record{Started: time.Now()})
	f, err := os.Create(j.Output())
	must.Do(t, err)
	defer f.Close()
	f.WriteString("one\ntwo\nthree\n")
	for lines, want := range map[int]string{-1: "one\ntwo\nthree\n", 0: "", 2: "two\nthree\n", 9: "one\ntwo\nthree\n"} {
		tail, err := j.Tail(lines, false)
		must.Do(t, err)
		if got, err := io.ReadAll(tail); err != nil || string(got) != want {
			t.Errorf("the last %d lines: %q, %v", lines, got, err)
		}
		tail.Close()
	}
	busy, err := j.Tail(1, false)
	must.Do(t, err)
	defer busy.Close()
	f.WriteString("more\n")
	if got, err := io.ReadAll(busy); err != nil || string(got) != "three\n" {
		t.Errorf("what a job writes while one reads: %q, %v", got, err)
	}
	f.Truncate(int64(len("one\ntwo\nthree\n")))
	f.Seek(0, io.SeekEnd)
	tail, err := j.Tail(1, true)
	must.Do(t, err)
	got := make(chan string)
	go func() {
		b, err := io.ReadAll(tail)
		must.Report(t, err)
		got <- string(b)
	}()
	f.WriteString("four\n")
	lock.Close() // the launcher ends
	if text := <-got; text != "three\nfour\n" {
		t.Errorf("followed %q", text)
	}
	tail.Close()
	other, _ := create(t, jobs.Store{Dir: filepath.Dir(j.Dir)}, jobs.Record{Started: time.Now()})
	must.Do(t, os.WriteFile(other.Output(), nil, 0o600))
	endless, err := other.Tail(-1, true)
	must.Do(t, err)
	done := make(chan error)
	go func() {
		_, err := endless.Read(make([]byte, 1))
		done <- err
	}()
	endless.Close()
	if err := <-done; err == nil {
		t.Error("a closed tail reads on")
	}
}

// FuzzAsked: whatever a user sends to a launcher, a terminal can show its description.
func FuzzAsked(f *testing.F) {
	f.Add([]byte(`{"do":"signal","signal":15,"by":"ann@host1"}`))
	f.Add([]byte(`{"do":"signal","signal":-1,"by":"\u001b[2J\n"}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		if what, got := jobs.Asked(line); jobs.Clean(got) != got || what == "" && got != "" {
			t.Errorf("%q, %q", what, got)
		}
	})
}

// TestCPUs: what a rank uses is a difference of two readings, by the time between them.
func TestCPUs(t *testing.T) {
	before := jobs.RankStatus{PID: 7, CPUMS: 1000, At: 10e6}
	for want, now := range map[float64]jobs.RankStatus{2: {PID: 7, CPUMS: 9000, At: 14e6}, -1: {PID: 7, CPUMS: 1000, At: 10e6}} {
		if got := now.CPUs(before); got != want {
			t.Errorf("%+v: %g CPUs, want %g", now, got, want)
		}
	}
}

func TestAsked(t *testing.T) {
	for line, want := range map[string][2]string{
		`{"do":"signal","signal":15,"by":"ann@host1"}`: {"signal", "SIGTERM, claimed by ann@host1"},
		`{"do":"signal","signal":99,"by":"\u001b[2J"}`: {"signal", "signal 99, claimed by ?[2J"},
		`{"do":"signal","signal":2}`:                   {"signal", "SIGINT"},
		`{"do":"output","after":7}`:                    {"output"},
		`{"do":"why","native":true}`:                   {"native"},
		`{"do":"why"}`:                                 {},
		`{"do":"state"}`:                               {}, `{"do":"wait"}`: {}, `{"do":`: {}, "": {},
	} {
		if what, detail := jobs.Asked([]byte(line)); [2]string{what, detail} != want {
			t.Errorf("%s: %q, %q, want %q", line, what, detail, want)
		}
	}
	for line, want := range map[string]string{
		`{"code":0}`: "", `{"error":"the job\u001b ends","code":0}`: "the job? ends", `{"error":"the`: "the answer of the job's launcher is cut",
	} {
		if got := jobs.Refusal([]byte(line)); got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}
