package launchers

import (
	"bufio"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"gorun/contrib/must"
	"gorun/launcher/jobs"
	"gorun/rendezvous/authority"
	"gorun/rendezvous/standing"
	"gorun/rendezvous/wire"
)

// TestElectorsHearOfRunningJobs: electors hear of a job when its launcher has reported that it runs, and until then it
// decides alone. One that fails before that waits for no one.
func TestElectorsHearOfRunningJobs(t *testing.T) {
	key := testKey(t)
	host := disk{saved: make(chan authority.State, 10)}
	home, _ := startDaemon(t, key, "a", host)
	const lease = 4 * time.Second
	open := func(job string) (k *Replicator, l *Launcher, reported *bufio.Reader) {
		electors := authority.Snapshot{Electors: []string{"a"}}
		k = newReplicator(job, electors, handover{}, map[string]string{"a": home}, replication{
			Client: standing.Client{Key: key, Version: testVersion}, Self: "a", Home: home, Lease: lease,
			Shares: func() []wire.Share { return nil }, Note: t.Logf,
			Superseded: func(uint64) { t.Error("there is another launcher") },
		})
		r, w, err := os.Pipe()
		must.Do(t, err)
		t.Cleanup(func() { r.Close(); w.Close() })
		return k, &Launcher{replicator: k, ready: w}, bufio.NewReader(r)
	}
	safe := func(k *Replicator, want uint64) {
		t.Helper()
		select {
		case got := <-k.Kept():
			if got != want {
				t.Errorf("%d is safe, want %d", got, want)
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("%d is not safe", want)
		}
	}
	k, l, reported := open("ab")
	for n := range uint64(2) {
		if got := k.Keep([]byte("1"), lease); got != n+1 {
			t.Errorf("number %d, want %d", got, n+1)
		}
		safe(k, n+1)
	}
	if n := len(host.saved); n > 0 {
		t.Fatalf("an elector knows of the job before it runs: %+v", <-host.saved)
	}
	l.Report("runs")
	if text, err := reported.ReadString('\n'); text != "runs\n" {
		t.Errorf("it said %q, %v", text, err)
	}
	if s := <-host.saved; s.Seq != 2 || !strings.Contains(string(s.Value), `"launcher":1`) {
		t.Errorf("the elector got value %d: %s", s.Seq, s.Value)
	}
	l.Report("says that again")
	k.Keep([]byte("2"), lease)
	safe(k, 3)
	k.Close(7)
	<-host.saved
	if s := <-host.saved; !s.Over || !strings.Contains(string(s.Value), `"code":7`) {
		t.Errorf("the elector got %+v", s)
	}

	k, _, _ = open("ef") // of a job that has waited for slots, and has nothing to leave yet
	k.Start()
	time.Sleep(lease / 4)
	if len(host.saved) > 0 {
		t.Errorf("the elector got %+v", <-host.saved)
	}
	k.Close(0)
	if s := <-host.saved; s.Seq != 1 || !s.Over {
		t.Errorf("the elector got %+v", s)
	}

	k, _, _ = open("cd")
	k.Keep([]byte("1"), lease)
	began := time.Now()
	if k.Close(1); time.Since(began) > 2*time.Second || len(host.saved) > 0 {
		t.Errorf("a job that has failed to start says so to its electors, for %v", time.Since(began))
	}
}

// A launcher that cannot be started leaves no job behind.
func TestStartLeavesNothing(t *testing.T) {
	store := jobs.Store{Dir: t.TempDir()}
	_, err := Start(t.Context(), store, exec.Command("/nonexistent"), jobs.Record{})
	if left, _ := store.List(); !errors.Is(err, fs.ErrNotExist) || len(left) > 0 {
		t.Errorf("error %v, jobs %v", err, left)
	}
}
