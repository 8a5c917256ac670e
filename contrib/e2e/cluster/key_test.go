package cluster

import (
	"encoding/json"
	"strings"
	"syscall"
	"testing"

	"gorun/contrib/e2e/e2etest"
	"gorun/contrib/must"
)

// TestKeyRotation follows docs/guides/clusters.md: the key file gets a second key, the two change places, and the old one goes.
// After each step the daemons are reloaded, one after the other. A job that began with the old key alone goes on with its ranks
// and its launcher, new ones start, and only at the end the old key is refused. The audit log has the keys that were used.
func TestKeyRotation(t *testing.T) {
	s := e2etest.NewLasting(t, 2)
	job, stdout, stderr := s.Begin(2, "up\n", append(s.Args, "--no-tag-output", "-np", "2", "sh", "-c", "echo up; while [ ! -e /tmp/go ]; do echo works; sleep 0.1; done; echo done")...)
	launcher := s.Launcher()
	s.Shell(launcher, "cp -p /root/.ssh/key /root/.ssh/old; umask 077; echo "+e2etest.AnotherKey+" >/root/.ssh/new")
	with := func(key string) string {
		return s.GorunBeside("ps", "--cluster", "host1", "--cluster-key-file", "/root/.ssh/"+key).Stderr
	}
	const older, newer = e2etest.ClusterKey, e2etest.AnotherKey
	for i, keys := range []string{older + "\\n" + newer, newer + "\\n" + older, newer} {
		for _, h := range append(s.Hosts(), launcher) {
			s.Shell(h, "printf '"+keys+"\\n' >/root/.ssh/key")
		}
		for j, d := range s.Daemons {
			must.Do(t, d.Process.Signal(syscall.SIGHUP))
			if err := d.Wait(); err != nil {
				t.Errorf("the daemon of host%d: %v\n%s", j+1, err, s.Logs[j])
			}
			s.Start(j)
			n := stdout.Count("works\n")
			s.Await("work after a reload", func() bool { return stdout.Count("works\n") > n+10 })
		}
		s.Await("cluster", func() bool {
			text := s.Ps()
			return strings.Contains(text, "host1") && strings.Contains(text, "host2") && strings.Contains(text, "2 of 2")
		})
		if said := with("new"); said != "" {
			t.Errorf("step %d, the new key: %s", i+1, said)
		}
		if said := with("old"); (said == "") != (i < 2) || i == 2 && !strings.Contains(said, "the other side does not hold the key") {
			t.Errorf("step %d, the old key: %s", i+1, said)
		}
		other, out, said := s.Command(append(s.Args, "--no-tag-output", "-np", "1", "echo", "another")...)
		if err := other.Run(); err != nil || out.String() != "another\n" {
			t.Errorf("step %d, another job: %v\n%s", i+1, err, said)
		}
	}
	for _, h := range s.Hosts() {
		s.Shell(h, "touch /tmp/go")
	}
	if err := job.Wait(); err != nil || stdout.Count("up\n") != 2 || stdout.Count("done\n") != 2 {
		t.Errorf("the job: %v\n%s\n%s", err, stdout, stderr)
	}
	for _, h := range s.Hosts() {
		s.Shell(h, "rm /tmp/go")
	}
	log, err := s.Host(2).Exec(t.Context(), "cat", "/root/.cache/gorun/state/gorun/audit/host2-7575.log")
	must.Do(t, err)
	proven := map[string]bool{}
	for line := range strings.Lines(log) {
		var e struct{ What, Key string }
		must.Do(t, json.Unmarshal([]byte(line), &e))
		if e.What == "reserve" || e.What == "start" {
			proven[e.Key] = true
		}
	}
	if len(proven) != 2 || proven[""] {
		t.Errorf("the audit log names the keys %v:\n%s", proven, log)
	}
	s.ExpectIdle()
}
