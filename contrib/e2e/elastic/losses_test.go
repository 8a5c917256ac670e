package elastic

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"gorun/contrib/e2e/e2etest"
	"gorun/contrib/must"
)

// killProcess kills the process of a number in the job, wherever it is.
func killProcess(j *e2etest.Training, number int) { signalProcess(j, number, syscall.SIGKILL) }

// signalProcess sends a signal to the process of a number.
func signalProcess(j *e2etest.Training, number int, signal syscall.Signal) {
	j.T.Helper()
	_, pid := processOf(j, number)
	if pid == 0 {
		j.T.Fatalf("no process %d\n%s", number, j.Out)
	}
	j.Must(syscall.Kill(pid, signal))
}

// processOf returns the number of the host on which a process of the training runs, and its id there; zeros if there is none.
func processOf(j *e2etest.Training, number int) (host, pid int) {
	j.T.Helper()
	for i, h := range j.Hosts() {
		for _, p := range h.Processes() {
			if strings.Contains(p.Args, "testdata/elastic") && processNumber(p) == strconv.Itoa(number) {
				return i + 1, p.PID
			}
		}
	}
	return 0, 0
}

// TestLossesInCommit: processes end at the worst places: when the others have committed, before they asked whether
// hosts come or go, and when the next world takes over the state. Nothing that survivors committed is done again.
func TestLossesInCommit(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		die  []string
		left int
	}{
		"all but one, at different places": {[]string{"0:40:before", "2:40:after"}, 1},
		"rank 0 of the next world":         {[]string{"2:40:after", "0:2:sync"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			c := e2etest.NewCluster(t, 3)
			var die []string
			for _, d := range tc.die {
				die = append(die, "--die", d)
			}
			j := c.TrainWith(60, die, "-np", "3", "--min-np", "1", "--on-failure", "shrink", "-H", "host1:1,host2:1,host3:1")
			j.Await(fmt.Sprintf(`is rank \d of %d from batch 40$`, tc.left))
			j.End(tc.left)
		})
	}
}

// TestHostShutsDown: a host is shut down in good order, and everything there gets TERM, its rank first. That has failed
// nothing: the host is lost, and used again soon.
func TestHostShutsDown(t *testing.T) {
	c := e2etest.NewCluster(t, 3)
	j := c.TrainOn("-np", "3", "--min-np", "1", "-H", "host1:1,host2:1,host3:1")
	j.Await(`is rank 2 of 3`)
	j.Await(`batch 30$`)
	struck := time.Now()
	all := c.Host(3).Processes()
	for _, what := range []string{"train.py", "gorun worker", "sshd: root"} {
		for _, p := range all {
			if strings.Contains(p.Args, what) {
				syscall.Kill(p.PID, syscall.SIGTERM) // it may have ended with the one before
			}
		}
	}
	j.Again(2, struck)
	j.Await(`gorun: host3 is lost: `)
	j.Await(`gorun: host3 is tried again in ([5-9]|10)s`)
	if lines, _ := j.Out.Find(`gorun: rank 2 on host3`); len(lines) > 0 {
		t.Errorf("the rank is said to have failed: %q\n%s", lines, j.Out)
	}
	j.Await(`process 3 is rank 2 of 3 from batch [1-9]`)
	j.EndNow(3)
}

// TestScale: a script lets hosts come and go, under load.
func TestScale(t *testing.T) {
	c := e2etest.NewCluster(t, 4)
	list := c.HostFile("host1:1", "host2:1")
	j := c.TrainOn("--min-np", "1", "--host-discovery-script", "cat "+list.Name)
	j.Await(`is rank 1 of 2 from batch \d`) // the first host need not wait for the second
	j.Await(`batch 20$`)
	list.Say("host1:1", "host2:1", "host3:1", "host4:1")
	j.Await(`is rank 3 of 4 from batch [1-9]`)
	list.Say("host3:1")
	j.Await(`is rank 0 of 1 from batch [1-9]`)
	list.Say("host3:1", "host1:1", "host2:1")
	j.Await(`process [4-9] is rank 2 of 3 from batch [1-9]`)
	j.EndNow(3)
}

// TestRestartElsewhere: vSphere HA starts a machine again that has lost its host, and DHCP gives it another address. It
// is used again in the job that lost it, once a discovery script lists it.
func TestRestartElsewhere(t *testing.T) {
	c := e2etest.NewCluster(t, 3)
	list := c.HostFile("host1:1", "host2:1", "host3:1")
	j := c.TrainOn("--min-np", "2", "--lease", "6", "--host-discovery-script", "cat "+list.Name)
	j.Await(`is rank 2 of 3`)
	j.Await(`batch 20$`)
	struck := time.Now()
	j.Must(c.Host(3).PowerOff())
	j.Again(2, struck)
	j.Must(c.Host(3).SetAddress(netip.MustParseAddr("10.77.0.73")))
	j.Must(c.Host(3).Boot(t.Context()))
	back := time.Now()
	j.Await(`process [3-9] is rank 2 of 3 from batch [1-9]`)
	t.Logf("%v after its start at another address the host trains", time.Since(back).Round(time.Millisecond))
	j.EndNow(3)
}

// TestSpareHost: a host that the job has no ranks for is ready all the same, so that a lost one is replaced by nothing
// but the start of its processes, although it is found at another address by then.
func TestSpareHost(t *testing.T) {
	c := e2etest.NewCluster(t, 3)
	j := c.TrainOn("-v", "--min-np", "2", "--max-np", "2", "-H", "host1:1,host2:1,host3:1")
	j.Await(`batch 1$`)
	spare, victim := 0, 0 // the host that is ready first has ranks
	for h := 1; h <= 3; h++ {
		if c.Runs(h, "train.py") {
			victim = h
		} else {
			spare = h
		}
	}
	if spare == 0 {
		t.Fatalf("all hosts have ranks\n%s", j.Out)
	}
	const daemon = "gorun worker --daemon"
	c.Await("daemon on the spare host", func() bool { return c.Runs(spare, daemon) })
	warm := j.Pid(spare, daemon)
	j.Await(`batch 30$`)
	// A host's sshd keeps a connection to an address that is gone until TCP gives it up.
	j.Idle = func() { c.ExpectLeft(5*time.Second, "sshd: ") }
	must.Do(t, c.Host(spare).SetAddress(netip.MustParseAddr("10.77.0.79")))
	j.Await(fmt.Sprintf(`host%d: is found at 10\.77\.0\.79 now`, spare))
	struck := time.Now()
	must.Do(t, c.Host(victim).Kill())
	j.Await(`process 2 is rank 1 of 2 from batch [1-9]`)
	_, lost := j.Out.Find(fmt.Sprintf(`gorun: host%d is lost: `, victim))
	_, at := j.Out.Find(`process 2 is rank 1 of 2 from batch [1-9]`)
	if len(lost) == 0 {
		t.Fatalf("nobody says that host%d is lost\n%s", victim, j.Out)
	}
	t.Logf("noticed after %v; %v later the spare host has the state and trains", lost[0].Sub(struck).Round(time.Millisecond), at[0].Sub(lost[0]).Round(time.Millisecond))
	if now := j.Pid(spare, daemon); now != warm {
		t.Errorf("the spare host has another daemon (%d) than before (%d)\n%s", now, warm, j.Out)
	}
	if !c.Runs(spare, "train.py") {
		t.Errorf("no rank on the spare host\n%s", j.Out)
	}
	if took := at[0].Sub(lost[0]); took > 60*time.Second { // 2 s on a quiet machine, most of it the import of torch
		t.Errorf("the spare host trained after %v only", took)
	}
	j.EndNow(2)
}
