package faults

import (
	"slices"
	"syscall"
	"testing"
	"time"

	"gorun/contrib/e2e/e2etest"
	"gorun/contrib/lab"
	"gorun/contrib/must"
)

// TestStunAtLogin: a host that is stunned while it lets the launcher in, for longer than a login may take, is waited
// for as long as a start may take.
func TestStunAtLogin(t *testing.T) {
	c := e2etest.NewCluster(t, 2)
	sshd := c.Host(2).Processes()[0].PID
	if err := syscall.Kill(sshd, syscall.SIGSTOP); err != nil { // or it would be through before the host is paused
		t.Fatal(err)
	}
	j := c.Follow("-H", "host1,host2", "echo", "in")
	t.Cleanup(func() { j.Cmd.Process.Kill(); j.Cmd.Wait() }) // whatever comes
	at := c.Host(2).Address()
	c.Await("connection with host2", func() bool {
		conns, err := c.Launcher().Logins()
		return err == nil && slices.ContainsFunc(conns, func(conn lab.Conn) bool { return conn.Peer.Addr() == at })
	})
	struck := time.Now()
	must.Do(t, c.Host(2).Freeze())
	time.Sleep(11 * time.Second)
	if j.Ended() {
		t.Fatalf("given up\n%s", j.Out)
	}
	must.Do(t, c.Host(2).Thaw())
	thawed := time.Now()
	err := j.Cmd.Wait()
	if said, _ := j.Out.Find(`in$`); err != nil || len(said) != 2 {
		t.Errorf("%v\n%s", err, j.Out)
	}
	t.Logf("stunned for %v, the job was over %v later", thawed.Sub(struck).Round(time.Millisecond), time.Since(thawed).Round(time.Millisecond))
	c.ExpectNothingLeft(5 * time.Second)
}
