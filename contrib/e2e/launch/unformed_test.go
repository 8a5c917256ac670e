package launch

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"gorun/contrib/e2e/e2etest"
)

// asleep starts a job whose ranks ask for no world, and returns when they run and there is none yet.
func asleep(c *e2etest.Cluster, args ...string) *e2etest.Training {
	c.T.Helper()
	args = append(args, "-H", "host1:1,host2:1", "sh", "-c", "echo up; sleep 8; echo down")
	j := c.Follow(args...)
	c.Await("both ranks", func() bool { found, _ := j.Out.Find(`:up$`); return len(found) == 2 })
	return j
}

// TestConnectionBreaksBeforeWorld: the launcher's connection to a host ends, and for some seconds there is no other,
// while ranks run that have not asked for a world. The host hears from the other one that the launcher lives, and its
// ranks go on.
func TestConnectionBreaksBeforeWorld(t *testing.T) {
	c := e2etest.NewCluster(t, 2)
	j := asleep(c)
	j.Must(c.Host(2).Mute(c.Launcher()))
	killed := 0
	for _, p := range c.Host(2).Processes() {
		if p.Inner != 1 && strings.HasPrefix(p.Args, "sshd: root") {
			j.Must(syscall.Kill(p.PID, syscall.SIGKILL))
			killed++
		}
	}
	if killed == 0 {
		t.Fatal("there is no connection to host2")
	}
	time.Sleep(5 * time.Second) // for more than twice as long as a host waits for a launcher of which no one hears
	j.Must(c.Host(2).Unmute(c.Launcher()))
	j.Succeed()
	if down, _ := j.Out.Find(`:down$`); len(down) != 2 {
		t.Errorf("%d ranks ended well\n%s", len(down), j.Out)
	}
	c.ExpectNothingLeft(5 * time.Second)
}

// TestHostDiesBeforeWorld: a host that is killed while ranks run that have not asked for a world is found dead as soon
// as in one.
func TestHostDiesBeforeWorld(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		args []string
		most time.Duration
	}{
		// Some 2 and 5 s on a quiet machine, as the system's ssh reports less about the host. The lease is a minute.
		"gorun's ssh":      {nil, 10 * time.Second},
		"the system's ssh": {[]string{"--ssh-command", "ssh"}, 20 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			c := e2etest.NewCluster(t, 2)
			j := asleep(c, append(tc.args, "--lease", "60")...)
			struck := time.Now()
			j.Must(c.Host(2).Kill())
			err := j.Cmd.Wait()
			took := time.Since(struck)
			t.Logf("the job ended after %v", took.Round(time.Millisecond))
			if j.Cmd.ProcessState.ExitCode() != 255 || !j.Out.Has(`gorun: error: host2: run: could not be reached since \d\d:\d\d:\d\d$`) {
				t.Errorf("no line reports that host2 is lost: %v\n%s", err, j.Out)
			}
			if took > tc.most {
				t.Errorf("it ended after %v\n%s", took, j.Out)
			}
			c.ExpectNothingLeft(5 * time.Second)
		})
	}
}

// TestHostFreezesBeforeWorld: a host that is paused while ranks run that have not asked for a world has its lease, and
// is the one that is named.
func TestHostFreezesBeforeWorld(t *testing.T) {
	const lease = 4 * time.Second
	c := e2etest.NewCluster(t, 2)
	j := asleep(c, "--lease", lease.String())
	struck := time.Now()
	j.Must(c.Host(2).Freeze())
	err := j.Cmd.Wait()
	took := time.Since(struck)
	t.Logf("the job ended after %v", took.Round(time.Millisecond))
	if j.Cmd.ProcessState.ExitCode() != 255 || !j.Out.Has(`gorun: error: host2: run: silent for 4s`) {
		t.Errorf("no line reports that host2 is silent: %v\n%s", err, j.Out)
	}
	if took < lease-2*time.Second || took > lease+5*time.Second { // it was heard within the second before
		t.Errorf("the job ended after %v, want the lease of %v and a little\n%s", took, lease, j.Out)
	}
	j.Must(c.Host(2).PowerOff())
	c.ExpectNothingLeft(5 * time.Second)
}

// TestLauncherDiesBeforeWorld: hosts that have not met yet report to each other that they do not hear the launcher any
// more, and do not wait for it for longer than a host that is alone.
func TestLauncherDiesBeforeWorld(t *testing.T) {
	c := e2etest.NewCluster(t, 2)
	j := asleep(c, "--lease", "60")
	j.Must(j.Cmd.Process.Kill())
	j.Cmd.Wait()
	struck := time.Now()
	c.ExpectNothingLeft(10 * time.Second) // the 2 s, and 1.5 s for ranks to end; peers that hear nothing wait for 30 s
	t.Logf("nothing is left after %v", time.Since(struck).Round(time.Millisecond))
}
