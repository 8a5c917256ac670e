package launchers

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gorun/contrib/must"
	"gorun/launcher"
	"gorun/launcher/jobs"
	"gorun/rendezvous/wire"
)

// TestRecordOfManyWriters: what the launcher's loop and the Replicator's goroutines record at once is all there.
func TestRecordOfManyWriters(t *testing.T) {
	job, lock, err := jobs.Store{Dir: t.TempDir()}.Create(jobs.Record{Program: "true"})
	must.Do(t, err)
	defer lock.Close()
	d := &Registration{job: job}
	if d.record, err = job.Load(); err != nil {
		t.Fatal(err)
	}
	const rounds = 200
	var writing sync.WaitGroup
	for _, change := range []func(*jobs.Record){
		func(r *jobs.Record) { r.Term++ },
		func(r *jobs.Record) { r.Code++ },
		func(r *jobs.Record) { r.Hosts = append(r.Hosts, fmt.Sprint("host", r.Term)) },
	} {
		writing.Go(func() {
			for range rounds {
				if err := d.Update(change); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	writing.Wait()
	if r, err := job.Load(); err != nil || r.Term != rounds || r.Code != rounds || len(r.Hosts) != rounds || r.Program != "true" {
		t.Errorf("of %d changes each the record has %d, %d and %d (%q, %v)", rounds, r.Term, r.Code, len(r.Hosts), r.Program, err)
	}
}

// TestRecordOfHostsApart: the status of a job shows which host another one does not hear, until it does, or one of the
// two is lost.
func TestRecordOfHostsApart(t *testing.T) {
	job, lock, err := jobs.Store{Dir: t.TempDir()}.Create(jobs.Record{State: jobs.Running})
	must.Do(t, err)
	defer lock.Close()
	d := &Registration{job: job, askUsage: make(chan struct{}, 1), ranks: []jobs.RankStatus{{Host: "host2", State: "runs"}, {Rank: 1, Host: "host3", State: "runs"}}}
	d.record.State, d.record.Ranks = jobs.Running, 2
	since := time.Now()
	shows := func(want ...string) {
		t.Helper()
		got := d.record.StateText()
		for _, r := range d.State().Ranks {
			got += "; " + r.State
		}
		if want := strings.ReplaceAll(strings.Join(want, "; "), "NOW", since.Local().Format(time.TimeOnly)); got != want {
			t.Errorf("it shows %q, want %q", got, want)
		}
	}
	apart := launcher.HostEvent{Host: "host3", To: "host2", State: launcher.HostSilent, Since: since}
	d.host(apart)
	shows("running, host3 silent to host2 since NOW", "runs", "host silent to host2 since NOW")
	d.host(launcher.HostEvent{Host: "host3", To: "host1", State: launcher.HostBack, Since: since})
	shows("running, host3 silent to host2 since NOW", "runs", "host silent to host2 since NOW")
	d.host(launcher.HostEvent{Host: "host3", To: "host2", State: launcher.HostBack, Since: since})
	shows("running", "runs", "runs")
	d.host(apart)
	d.world(2, []string{"host2", "host3"})
	shows("running, host3 silent to host2 since NOW", "runs", "host silent to host2 since NOW")
	d.host(launcher.HostEvent{Host: "host2", State: launcher.HostLost})
	shows("running", "ended with its host", "runs")
	d.host(apart)
	d.world(1, []string{"host3"})
	shows("running", "ended with its host", "runs")
}

// TestHosts: clients see what each host of the world has reported, and what has happened how often.
func TestHosts(t *testing.T) {
	d := &Registration{askUsage: make(chan struct{}, 1)}
	d.record.Hosts = []string{"host1", "host2"}
	host2 := jobs.HostStatus{Name: "host2", Epoch: 2, Next: "host1", Links: wire.Links{SentBytes: 7}, Open: 3}
	d.hostUsage(host2)
	d.hostUsage(jobs.HostStatus{Name: "host3"})
	d.happens("stall", "late")
	d.happens("stall", "later")
	s := d.State()
	if want := []jobs.HostStatus{{Name: "host1"}, host2}; !reflect.DeepEqual(s.Hosts, want) || s.Counted["stall"] != 2 {
		t.Errorf("got %+v, %v", s.Hosts, s.Counted)
	}
}

// TestEvents: clients see what has happened, and ranks that do one thing at about one time in one line, and the memory is bounded.
func TestEvents(t *testing.T) {
	d := &Registration{background: &background{changed: make(chan struct{}, 1)}}
	shows := func(want ...string) {
		t.Helper()
		var got []string
		for _, e := range d.State().Events {
			got = append(got, e.Kind+": "+e.Text)
		}
		if d.events = nil; !slices.Equal(got, want) {
			t.Errorf("it shows %q, want %q", got, want)
		}
	}
	used := func(epoch uint32, renewed uint64) {
		d.hostUsage(jobs.HostStatus{Name: "a", Epoch: epoch, Links: wire.Links{Renewed: renewed}})
	}
	d.world(2, []string{"a", "b"})
	used(1, 1)
	for rank := range 1000 {
		d.rank(launcher.RankEvent{Rank: rank, PID: 10 + rank, Host: "a"})
	}
	shows("epoch: epoch 1 begins, with 2 ranks on 2 hosts", "started: ranks 0-999 started")
	d.host(launcher.HostEvent{Host: "b", State: launcher.HostSilent, Since: time.Now()})
	d.host(launcher.HostEvent{Host: "b", State: launcher.HostBack})
	d.host(launcher.HostEvent{Host: "a", To: "b", State: launcher.HostSilent, Since: time.Now()})
	d.host(launcher.HostEvent{Host: "a", To: "b", State: launcher.HostBack})
	d.host(launcher.HostEvent{Host: "b", State: launcher.HostLost})
	d.world(2, []string{"a", "c"})
	used(2, 3)
	shows("silent: b falls silent", "back: b is heard again", "silent: a falls silent to b", "joined: c has joined", "left: b is not in the job any more",
		"link: a has renewed connections: 2", "epoch: epoch 2 begins, with 2 ranks on 2 hosts")
	for rank := range 3 {
		d.rank(launcher.RankEvent{Rank: rank, Host: "a", Ended: true, Code: rank % 2})
	}
	d.Stopping("me@here")
	shows("ended: ranks 0,2 ended with 0", "ended: rank 1 ended with 1", "stopping: the job is stopped by me@here")
	for range 3 * maxEvents {
		d.happens("stall", "late")
	}
	if n := len(d.State().Events); n != maxEvents {
		t.Errorf("%d events are kept", n)
	}
}

// TestForeground: a job in the foreground is listed from its start, with what happens to it, and its last record is
// there when End returns.
func TestForeground(t *testing.T) {
	store := jobs.Store{Dir: filepath.Join(t.TempDir(), "gorun", "jobs")}
	begin := func() *Registration { return Begin(store, jobs.Record{Program: "true"}) }
	find := func(id string) (r jobs.Record) {
		t.Helper()
		for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
			var err error
			if _, r, err = store.Find(id, false); err == nil {
				return r
			}
			if time.Now().After(deadline) {
				t.Fatal(err)
			}
		}
	}
	r := begin()
	if got := find("1"); got.State != jobs.Running || !got.Foreground || got.PID != os.Getpid() || got.Started.IsZero() {
		t.Errorf("%+v", got)
	}
	r.rank(launcher.RankEvent{PID: 7, Host: "a"})
	r.Stopping("me@here")
	r.Stopping("another")
	r.End(143, "")
	if got := find("1"); got.State != jobs.Ended || got.Code != 143 || got.StoppedBy != "me@here" || got.Stopping.IsZero() {
		t.Errorf("%+v", got)
	}
	if left, _ := filepath.Glob(filepath.Join(store.Dir, "1", "*")); len(left) != 3 {
		t.Errorf("beside the record, its lock and the end of the output there is %v", left)
	}

	r = begin()
	r.rank(launcher.RankEvent{Ended: true, Code: 127, Host: "a"}) // it could not start
	r.End(127, "not found")
	if _, _, err := store.Find("2", false); err == nil {
		t.Error("a job that has not run is listed")
	}

	var none *Registration
	none.Stopping("me")
	none.End(0, "")
}

// TestForegroundWaitsForNoDisk: a job runs and ends though its record cannot be kept, or its file system hangs.
func TestForegroundWaitsForNoDisk(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	must.Do(t, os.WriteFile(file, nil, 0o600))
	began := time.Now()
	Begin(jobs.Store{Dir: filepath.Join(file, "jobs")}, jobs.Record{}).End(0, "")
	if waited := time.Since(began); waited > endTimeout/2 {
		t.Errorf("it ended after %v", waited)
	}

	hangs := &Registration{background: &background{changed: make(chan struct{}, 1), ending: make(chan struct{}), done: make(chan struct{})}}
	began = time.Now()
	for range 100 {
		hangs.Stopping("me")
	}
	if waited := time.Since(began); waited > endTimeout/2 {
		t.Errorf("changes took %v", waited)
	}
	hangs.End(0, "")
	if waited := time.Since(began); waited > 2*endTimeout {
		t.Errorf("it ended after %v", waited)
	}
}

// TestForegroundDiskFull: users read that a full disk keeps the end of a job from being recorded, and no empty file stays.
func TestForegroundDiskFull(t *testing.T) {
	dir := t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=64k", "gorun-test", dir).CombinedOutput(); err != nil {
		t.Skipf("needs to mount a tmpfs (root): %s", out)
	}
	defer exec.Command("umount", dir).Run()
	from, to, err := os.Pipe()
	must.Do(t, err)
	defer func(former *os.File) { os.Stderr = former }(os.Stderr)
	os.Stderr = to
	store := jobs.Store{Dir: filepath.Join(dir, "jobs")}
	for full := range 2 { // during the first job, and before the second
		r := Begin(store, jobs.Record{Program: "true"})
		for deadline := time.Now().Add(10 * time.Second); full == 0 && r.Recording() == ""; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("the job is not listed")
			}
		}
		r.rank(launcher.RankEvent{PID: 7, Host: "a"})
		if full == 0 {
			os.WriteFile(filepath.Join(dir, "fill"), make([]byte, 1<<17), 0o600)
		}
		r.End(0, "")
	}
	to.Close()
	said, _ := io.ReadAll(from)
	if n := strings.Count(string(said), "gorun: warning: gorun ps cannot show how this job ended: "); n != 2 || strings.Count(string(said), ": no space left on device\n") != 2 {
		t.Errorf("users read\n%s", said)
	}
	if left, _ := filepath.Glob(filepath.Join(store.Dir, "*", "*.new")); left != nil {
		t.Errorf("left is %q", left)
	}
}

// TestOwned: only below the user's own directories is anything made.
func TestOwned(t *testing.T) {
	own := t.TempDir()
	for dir, want := range map[string]bool{own: true, filepath.Join(own, "a", "b"): true, "/not/there": false, "/": false} {
		if got := owned(dir); got != want {
			t.Errorf("%s: %v", dir, got)
		}
	}
	if os.Geteuid() != 0 {
		return
	}
	must.Do(t, os.Chown(own, 1, 1))
	if owned(filepath.Join(own, "a")) {
		t.Error("in the home of another user, too")
	}
}

// TestRequests: what a launcher cannot do for a client, it says. Only the signals that a terminal's user would send are
// passed on.
func TestRequests(t *testing.T) {
	r := newRegistration()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		<-r.whys
		cancel()
	}()
	for _, c := range []struct{ do, want string }{
		{"signal", "signal 9 is not passed on"}, {"dance", `unknown request "dance"`}, {"why", "the job is ending"},
		{"drain", "the job is starting or ending"},
	} {
		if _, err := r.answer(ctx, jobs.Request{Do: c.do, Signal: 9}); err == nil || err.Error() != c.want {
			t.Errorf("%s: %v, want %s", c.do, err, c.want)
		}
	}
}
