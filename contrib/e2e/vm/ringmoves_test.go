package vm

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"gorun/contrib/e2e/e2etest"
	"gorun/contrib/must"
)

// TestRingFollowsMove: a machine is moved to the ESXi host of another one, as its guestinfo shows afterwards; what the
// topology file holds about it was true of another session, and counts no more. The ring then crosses from one ESXi
// host to another more often than it has to, and becomes another one; no rank begins anew.
func TestRingFollowsMove(t *testing.T) {
	c := e2etest.NewCluster(t, 4)
	v := vsphereOn(c)
	write := func(host, name, text string) {
		t.Helper()
		file := filepath.Join(v.dir, host, name)
		err := os.MkdirAll(filepath.Dir(file), 0o700)
		if err == nil {
			err = os.WriteFile(file, []byte(text+"\n"), 0o600)
		}
		must.Do(t, err)
	}
	file, text := filepath.Join(v.dir, "facts.yaml"), "hosts:\n"
	for i, esxi := range []string{"esx-a", "esx-a", "esx-a", "esx-b"} {
		name, session := fmt.Sprintf("host%d", i+1), fmt.Sprintf("0x%x", i+10)
		write(name, "session", session)
		text += fmt.Sprintf("  %s: {esxi: %s, session: '%s'}\n", name, esxi, session)
	}
	must.Do(t, os.WriteFile(file, []byte(text), 0o600))
	const steps = 400
	j := c.Follow("-v", "--ring-order", "topology", "--topology", file, "--algorithm", "ring", "--vmtoolsd", filepath.Join(v.dir, "vmtoolsd"),
		"-H", "host1,host2,host3,host4", e2etest.Python, "testdata/elastic/steps.py", "--steps", fmt.Sprint(steps), "--length", "4000", "--pause", "0.05")
	j.Await(`epoch 1, ring: host1 → host2 → host3 → host4 → `)
	j.Await(`host2: vSphere announces moves of this machine`)
	j.Await(`commit 10 epoch 1 size 4`)
	v.tell("host2", "start", 8001, "")
	j.Await(`gorun: host2: ready to be moved, vSphere knows`)
	write("host2", "guestinfo.gorun.esxi", "esx-b")
	write("host2", "session", "0x77")
	v.tell("host2", "end", 8001, `,"opStatus":"success"`)
	j.Await(`host2: after the pause its session is another one, esxi is esx-b, not esx-a`)
	j.Await(`epoch 1, the ring changes while the job runs: it crosses 2 borders less`)
	j.Succeed()
	c.ExpectNothingLeft(5 * time.Second)
	rings, _ := j.Out.Find(`epoch 1, ring: (.*)$`)
	if len(rings) != 2 || rings[1][1] != "host1 → host2 → host4 → host3 → (host1)" { // 1 and 3 are on the one, 2 and 4 on the other
		t.Errorf("rings %v", rings)
	}
	if done, _ := j.Out.Find(fmt.Sprintf(`done rank \d of 4: steps %d epoch 1 worlds 1 weights (\w+)$`, steps)); len(done) != 4 {
		t.Errorf("%d ranks are done in the world that they began in\n%s", len(done), j.Out)
	}
}
