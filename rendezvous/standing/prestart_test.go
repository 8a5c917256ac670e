package standing_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"gorun/contrib/must"
	"gorun/rendezvous/standing"
)

// daemons are the process ids of a host's daemons of jobs, by their number.
func (m *member) daemons() map[int]int {
	m.t.Helper()
	found := map[int]int{}
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil || len(files) == 0 {
		m.t.Fatalf("no process has an environment: %v", err)
	}
	for _, file := range files {
		text, _ := os.ReadFile(file) // most are others'
		_, mine, ok := bytes.Cut(text, []byte("GORUN_TEST_JOB="+m.mark))
		if !ok {
			continue
		}
		mine, _, _ = bytes.Cut(mine, []byte{0})
		number, _ := strconv.Atoi(string(mine))
		found[number], _ = strconv.Atoi(filepath.Base(filepath.Dir(file)))
	}
	return found
}

// who asks the daemon of a job for its number.
func (m *member) who(s *standing.DaemonStream) int {
	m.t.Helper()
	defer inTime(s)()
	if _, err := s.Write([]byte("who")); err != nil {
		m.t.Fatal(err)
	}
	said := make([]byte, len(m.mark)+1) // numbers have one digit here
	if _, err := io.ReadFull(s, said); err != nil {
		m.t.Fatal(err)
	}
	number, err := strconv.Atoi(string(said[len(m.mark):]))
	must.Do(m.t, err)
	return number
}

// TestSpare: a daemon waits for the next job, and is the one that gets it, and then the one after that. One that is killed is
// replaced, and no job misses it. None waits any more when the host is gone.
func TestSpare(t *testing.T) {
	t.Parallel()
	a := start(t, "a", 2)
	l := a.reserve(1)
	defer l.Close()
	run := func() (number int) {
		t.Helper()
		s, err := l.Start(t.Context(), "a")
		must.Do(t, err)
		defer s.Close()
		echo(t, s)
		return a.who(s)
	}
	spare := func() (number, pid int) {
		t.Helper()
		must.Soon(t, "spare daemon", func() bool {
			all := a.daemons()
			for number, pid = range all {
			}
			return len(all) == 1
		})
		return number, pid
	}
	for range 2 { // the second job has the daemon of the first
		for tries := 1; ; tries++ { // a job may come when the process is there and not yet known to wait
			want, _ := spare()
			if got := run(); got == want {
				break
			} else if tries == 3 {
				t.Fatalf("a job has daemon %d, not %d, which waited", got, want)
			}
		}
	}
	number, pid := spare()
	must.Do(t, syscall.Kill(pid, syscall.SIGKILL))
	must.Soon(t, "end of it", func() bool {
		_, err := os.Stat(fmt.Sprintf("/proc/%d", pid))
		return err != nil // of all of its threads
	})
	got := run()
	if got <= number {
		t.Errorf("a job has daemon %d, but %d was killed", got, number)
	}
	if next, _ := spare(); next < got {
		t.Errorf("daemon %d waits, which was killed", next)
	}
	a.stop()
	<-a.ended
	if left := a.daemons(); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestSpareOfAnother: a daemon that leaves its jobs to the next one takes its spare along.
func TestSpareOfAnother(t *testing.T) {
	t.Parallel()
	a := start(t, "a", 1)
	must.Soon(t, "spare", func() bool { return len(a.daemons()) == 1 })
	a.leave()
	<-a.ended
	if left := a.daemons(); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
