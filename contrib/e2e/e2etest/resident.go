//go:build linux

package e2etest

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"gorun/contrib/lab"
	"gorun/contrib/must"
)

// ClusterKey is the key of the clusters of tests, AnotherKey that of another one.
const (
	ClusterKey = "6f1f900a73197ef609d212fdad3ab7c39b97936695744f2c1a23f3475c85a0c7"
	AnotherKey = "c2b03d14f5e1977ea08d6b52194cf83e70a5de926b4d1783fc09e5a8613b72d4"
)

// Lasting is a cluster with a resident daemon of two slots on each host.
type Lasting struct {
	*Cluster
	key     string
	idle    map[string][]string // what Leftovers finds beside jobs
	Args    []string            // of a launch
	Daemons []*lab.Cmd
	Logs    []*Watch
	// For daemons that start from now on: their binary, additions to their environment and their flags, and what they
	// join if not host1.
	Daemon string
	Env    []string
	Flags  []string
	Join   string
}

// NewLasting makes a cluster and waits until the daemons of all hosts accept jobs.
func NewLasting(t *testing.T, hosts int) *Lasting {
	t.Helper()
	t.Parallel()
	return NewLastingWith(t, hosts, lab.Options{})
}

// NewLastingWith is NewLasting with a lab that has options and daemons with flags, for a test that says itself whether it
// runs in parallel.
func NewLastingWith(t *testing.T, hosts int, options lab.Options, flags ...string) *Lasting {
	t.Helper()
	c := NewClusterWith(t, hosts, options)
	key := filepath.Join(t.TempDir(), "key")
	must.Do(t, os.WriteFile(key, []byte(ClusterKey), 0o600))
	s := &Lasting{Cluster: c, idle: map[string][]string{}, key: key, Daemon: c.Binary, Flags: flags}
	s.Args = []string{"--cluster", "host2", "--cluster-key-file", "/root/.ssh/key"}
	for _, h := range append(c.Hosts(), c.Launcher()) {
		s.keep(h)
	}
	s.Daemons, s.Logs = make([]*lab.Cmd, hosts), make([]*Watch, hosts)
	for i := range c.Hosts() {
		s.Start(i)
	}
	c.Await("cluster", func() bool { return strings.Count(s.Ps(), "0 of 2") == hosts })
	for _, h := range c.Hosts() {
		s.idle[h.Name()] = slices.DeleteFunc(h.Leftovers(), func(l string) bool { return strings.Contains(l, " --resumable") })
	}
	t.Cleanup(func() {
		for i, cmd := range s.Daemons {
			if cmd == nil {
				continue // without power
			}
			cmd.Process.Signal(syscall.SIGTERM)
			// The test's context has ended, and Wait may report that for a daemon that ends well.
			if err := cmd.Wait(); err != nil && cmd.ProcessState.ExitCode() > 0 {
				t.Errorf("daemon of host%d: %v\n%s", i+1, err, s.Logs[i])
			}
		}
		c.ExpectNothingLeft(5 * time.Second)
	})
	return s
}

// Start starts the daemon of a host.
func (s *Lasting) Start(i int) {
	s.T.Helper()
	join := "host1"
	if i == 0 {
		join = "127.0.1.1" // as /etc/hosts of Debian has it for the host's own name
	}
	join = cmp.Or(s.Join, join)
	args := []string{"worker", "--cluster-key-file", "/root/.ssh/key", "--slots", "2", "--join", join}
	cmd := s.Host(i+1).Command(s.T.Context(), s.Daemon, append(args, s.Flags...)...)
	cmd.Env = slices.Concat(cmd.Env, s.Env, []string{"XDG_STATE_HOME=/root/.cache/gorun/state"}) // where Leftovers does not look
	log := new(Watch)
	cmd.Stderr = log
	must.Do(s.T, cmd.Start())
	s.Daemons[i], s.Logs[i] = cmd, log
	s.Await("daemon", func() bool { return log.Count("takes jobs") == 1 })
}

// PowerOff cuts a host's power, and with it ends its daemon.
func (s *Lasting) PowerOff(i int) {
	s.T.Helper()
	gone := make(chan struct{})
	cmd := s.Daemons[i]
	s.Daemons[i] = nil
	go func() {
		cmd.Wait()
		close(gone)
	}()
	must.Do(s.T, s.Host(i+1).Kill())
	<-gone
}

// Boot starts a host without power, and its daemon.
func (s *Lasting) Boot(i int) {
	s.T.Helper()
	must.Do(s.T, s.Host(i+1).Boot(s.T.Context()))
	s.keep(s.Host(i + 1))
	s.Start(i)
}

// keep gives a host the key of the cluster, where Leftovers does not look.
func (s *Lasting) keep(h *lab.LabHost) {
	s.T.Helper()
	s.Shell(h, "umask 077; mkdir -p /root/.ssh; echo '"+ClusterKey+"' >/root/.ssh/key")
}

// Ps returns the output of gorun ps.
func (s *Lasting) Ps() string {
	cmd, stdout, stderr := s.Command(append([]string{"ps"}, s.Args...)...)
	if err := cmd.Run(); err != nil {
		s.T.Fatalf("%v\n%s", err, stderr)
	}
	return stdout.String()
}

// ExpectIdle waits until only the daemons are there.
func (s *Lasting) ExpectIdle() {
	s.T.Helper()
	var left []string
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		left = nil
		for _, h := range s.Hosts() {
			prestarted := 0 // daemons less supervisors, 0 if each has one
			for _, l := range h.Leftovers() {
				switch {
				case slices.Contains(s.idle[h.Name()], l), strings.Contains(l, "worker --cluster-key-file"):
				case strings.HasSuffix(l, "worker --daemon --resumable idle"):
					prestarted++
				case strings.HasSuffix(l, "worker --resumable"):
					prestarted--
				default:
					left = append(left, h.Name()+": "+l)
				}
			}
			if prestarted != 0 {
				left = append(left, h.Name()+": half of a prestarted daemon")
			}
		}
		if len(left) == 0 {
			return
		}
	}
	s.T.Errorf("left behind:\n%s", strings.Join(left, "\n"))
}
