package faults

import (
	"testing"
	"time"

	"gorun/contrib/e2e/e2etest"
	"gorun/contrib/must"
)

// TestResetWhileCutOff: the launcher's connection to a host is reset while that host is cut off, by a firewall that lost its
// memory, say. The host is looked for until it is back, within its lease; no rank is started again, and the weights are
// those of an undisturbed job.
func TestResetWhileCutOff(t *testing.T) {
	c := e2etest.NewCluster(t, 2)
	j := c.TrainOn("--lease", "30", "--min-np", "1", "-H", "host1:1,host2:1")
	j.Await(`is rank 1 of 2`) // hosts may come one after the other
	j.Await(`batch 20$`)
	told, _ := j.Out.Find(`(is lost|is rank)`)
	cutAndReset(j, 2, 5*time.Second)
	j.Await(`gorun: host2 is back after `)
	j.EndNow(2)
	if now, _ := j.Out.Find(`(is lost|is rank)`); len(now) != len(told) {
		t.Errorf("the world did not stay as it was\n%s", j.Out)
	}
}

// cutAndReset cuts a host off, resets the launcher's connections with it, and heals it.
func cutAndReset(j *e2etest.Training, host int, lasts time.Duration) {
	j.T.Helper()
	h := j.Host(host)
	must.Do(j.T, h.Cut())
	healed := time.After(lasts)
	conns, err := j.Launcher().Logins()
	must.Do(j.T, err)
	reset := 0
	for _, conn := range conns {
		if conn.Peer.Addr() != h.Address() {
			continue
		}
		gone, err := j.Launcher().Reset(conn)
		must.Do(j.T, err)
		if gone {
			reset++
		}
	}
	if reset == 0 {
		j.T.Fatalf("none of the connections %v was reset", conns)
	}
	<-healed
	must.Do(j.T, h.Heal())
}

// TestHostRestarts: of a host that lost power and was started again within its lease users read that it was started again.
func TestHostRestarts(t *testing.T) {
	c := e2etest.NewCluster(t, 2)
	d := c.Descend(1000, "0.05")
	d.Reach(20)
	d.Must(c.Host(2).PowerOff())
	d.Must(c.Host(2).Boot(t.Context()))
	err := d.Cmd.Wait()
	if !d.Out.Has(`^gorun: error: host2: run: the daemon of the job is not on this host any more, which was started \d+s ago$`) {
		t.Errorf("no line reports that host2 was started again: %v\n%s", err, d.Out)
	}
	c.ExpectNothingLeft(10 * time.Second)
}

// TestHungUpOnPeers: of a host that a program of the user's leads to gorun hears no more than that the connection ended. That it
// has hung up on another host as well is why it need not be waited for.
func TestHungUpOnPeers(t *testing.T) {
	c := e2etest.NewCluster(t, 2)
	d := c.Descend(1000, "0.05", "--ssh-command", "env ssh", "--lease", "60")
	d.Reach(20)
	struck := time.Now()
	must.Do(t, c.Host(2).Kill())
	err := d.Cmd.Wait()
	took := time.Since(struck)
	t.Logf("the job ended after %v", took.Round(time.Millisecond))
	if d.Cmd.ProcessState.ExitCode() != 255 || !d.Out.Has(`gorun: error: host2: run: could not be reached since \d\d:\d\d:\d\d$`) {
		t.Errorf("no line reports that host2 is lost: %v\n%s", err, d.Out)
	}
	if took > 30*time.Second { // some 3 s on a quiet machine
		t.Errorf("it ended after %v, which is no sooner than if the host were silent", took)
	}
	c.ExpectNothingLeft(5 * time.Second)
}
