package vm

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"gorun/contrib/e2e/e2etest"
	"gorun/contrib/must"
)

// TestMovesFromElsewhere: hosts that know nothing of their moves are announced by a command, outlive a silence that is
// longer than the lease of others, and renew their connections when the command reports that they have arrived. Where
// they are then, as it reports too, is newer than what the topology file does.
func TestMovesFromElsewhere(t *testing.T) {
	c := e2etest.NewCluster(t, 2)
	dir := c.Shared("vcenter")
	feed, facts := filepath.Join(dir, "moves"), filepath.Join(dir, "facts.yaml")
	for name, text := range map[string]string{feed: "", facts: "hosts:\n  host1: {esxi: esx-02}\n  host2: {esxi: esx-01, zone: z, by: vCenter}\n"} {
		must.Do(t, os.WriteFile(name, []byte(text), 0o600))
	}
	say := func(line string) {
		f, err := os.OpenFile(feed, os.O_APPEND|os.O_WRONLY, 0)
		if err == nil {
			_, err = f.WriteString(line + "\n")
			f.Close()
		}
		must.Do(t, err)
	}
	want := c.UndisturbedDescent(100)
	d := c.Descend(100, "0.02", "--moves", "exec tail -n 0 -f "+feed, "--topology", facts)
	d.Reach(50)
	say("another starts vMotion to esx-01")
	say("host2 starts vMotion to esx-02")
	d.Await(`gorun: host2 is about to be moved: vMotion to esx-02$`)
	must.Do(t, c.Host(2).Freeze())
	time.Sleep(500 * time.Millisecond) // the move
	must.Do(t, c.Host(2).Thaw())
	say("host2 ends esxi=esx-02 by=vCenter moved from esx-01")
	d.Await(`gorun: host2 renews its connections: moved from esx-01$`)
	d.Await(`gorun: host2: zone of the topology file still counts after the move`)
	d.Await(`gorun: host2: after the pause esxi is esx-02, not esx-01$`)
	d.ExpectWeights(want)
	if d.Out.Has(`another`) {
		t.Errorf("a host that is none of the job's is announced:\n%s", d.Out)
	}
}
