//go:build linux

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"gorun/contrib/lab"
)

// TestRingChangesWhileTraining: a way of the ring becomes slow in the middle of a job. The hosts notice it by what they
// send anyway, try the others, and go on in another ring without it: the weights are those of a job that nobody
// disturbed, to the last bit, and no rank began anew. What happens to an interface is noticed too.
func TestRingChangesWhileTraining(t *testing.T) {
	c := newClusterAlone(t, 4)
	const fast, slow = 400e6, 60e6
	for _, h := range c.Hosts() {
		if err := h.SetLink(lab.Link{Rate: fast}); err != nil {
			t.Fatal(err)
		}
	}
	const steps = 120
	j := c.follow("-v", "--ring-order", "measured", "--algorithm", "ring", "-H", "host1,host2,host3,host4",
		python, "testdata/elastic/steps.py", "--steps", fmt.Sprint(steps), "--length", "400000", "--pause", "0.02")
	j.await(`commit 20 epoch 1 size 4`)
	first, _ := j.out.find(`epoch 1, (ring: host1 → host(\d) → host(\d) → .*)$`)
	if len(first) != 1 {
		t.Fatalf("rings %v\n%s", first, j.out)
	}
	a, _ := strconv.Atoi(first[0][2])
	b, _ := strconv.Atoi(first[0][3])
	if err := c.SetPath(c.Host(a), c.Host(b), slow); err != nil {
		t.Fatal(err)
	}
	j.await(fmt.Sprintf(`host[%d%d]: to-host[%d%d] is new`, a, b, a, b))
	j.await(`epoch 1, the ring changes while the job runs: its slowest edge carries`)
	if err := j.cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, j.out)
	}
	c.expectNothingLeft(5 * time.Second)
	rings, _ := j.out.find(`epoch 1, ring: (.*)$`)
	former, _ := j.out.find(`epoch 1, former (ring: .*)$`)
	if len(rings) < 2 || len(former) != len(rings)-1 || former[0][1] != first[0][1] {
		t.Fatalf("rings %v, former ones %v\n%s", rings, former, j.out)
	}
	last := rings[len(rings)-1][1]
	if strings.Contains(last, fmt.Sprintf("host%d → host%d", a, b)) || strings.Contains(last, fmt.Sprintf("host%d → host%d", b, a)) {
		t.Errorf("the last ring goes over the slow way between host%d and host%d: %s\n%s", a, b, last, j.out)
	}
	// Ten steps each.
	_, commits := j.out.find(`commit \d+ epoch 1`)
	slowest, end := time.Duration(0), commits[len(commits)-1].Sub(commits[len(commits)-2])
	for i := 1; i < len(commits); i++ {
		slowest = max(slowest, commits[i].Sub(commits[i-1]))
	}
	t.Logf("a step took %v over the slow way, %v in the end", slowest/10, end/10)
	if end > slowest*2/3 {
		t.Errorf("the other ring is not faster\n%s", j.out)
	}
	j.doneAlike(t, 4, steps)
}

// doneAlike expects all ranks to have ended in the world that they began in, with the same weights. The script checks them
// against those of all steps, in whole numbers: no order of adding changes them.
func (j *training) doneAlike(t *testing.T, ranks, steps int) {
	t.Helper()
	done, _ := j.out.find(fmt.Sprintf(`done rank \d of %d: steps %d epoch 1 worlds 1 weights (\w+)$`, ranks, steps))
	if len(done) != ranks {
		t.Errorf("%d ranks are done in the world that they began in\n%s", len(done), j.out)
	}
	for _, d := range done {
		if d[1] != done[0][1] {
			t.Errorf("weights %s and %s", d[1], done[0][1])
		}
	}
}

// TestTopologyFileChanges: an administrator corrects the topology file while a job runs. The ring follows; a file that is none
// is told, and changes nothing.
func TestTopologyFileChanges(t *testing.T) {
	c := newCluster(t, 4)
	dir := c.shared("facts")
	file := filepath.Join(dir, "facts.yaml")
	write := func(racks ...string) {
		t.Helper()
		text := "hosts:\n"
		for i, rack := range racks {
			text += fmt.Sprintf("  host%d: {%s}\n", i+1, rack)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("rack: a", "rack: a", "rack: b", "rack: b")
	const steps = 500
	j := c.follow("-v", "--ring-order", "topology", "--topology", file, "--algorithm", "ring",
		"-H", "host1,host2,host3,host4", python, "testdata/elastic/steps.py", "--steps", fmt.Sprint(steps), "--length", "4000", "--pause", "0.05")
	j.await(`epoch 1, ring: host1 → host2 → host3 → host4 → `)
	j.await(`commit 10 epoch 1 size 4`)
	write("rack: a", "rock: b", "rack: a", "rack: b")
	j.await(`warning: .*facts.yaml: line 3: a host has no "rock"; what it said before still counts`)
	write("rack: a", "rack: b", "rack: a", "rack: b")
	j.await(`facts.yaml has changed: what it says counts from now on`)
	j.await(`host2: by the topology file rack is b, not a`)
	j.await(`epoch 1, the ring changes while the job runs: it crosses 2 borders less`)
	write("rack: a", "rack: b", "", "rack: b")
	j.await(`host3: by the topology file rack is not known, was a`)
	if err := j.cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, j.out)
	}
	c.expectNothingLeft(5 * time.Second)
	if rings, _ := j.out.find(`epoch 1, ring: (.*)$`); len(rings) != 2 || rings[1][1] != "host1 → host2 → host4 → host3 → (host1)" {
		t.Errorf("rings %v", rings)
	}
	if done, _ := j.out.find(fmt.Sprintf(`done rank \d of 4: steps %d epoch 1 worlds 1 weights (\w+)$`, steps)); len(done) != 4 {
		t.Errorf("%d ranks are done in the world that they began in\n%s", len(done), j.out)
	}
}

// TestRingFollowsMove: a machine is moved to the ESXi host of another one, as its guestinfo says afterwards; what the topology
// file says of it was true of another session, and counts no more. The ring then crosses from one ESXi host to another more
// often than it has to, and becomes another one; no rank begins anew.
func TestRingFollowsMove(t *testing.T) {
	c := newCluster(t, 4)
	v := c.vsphere()
	write := func(host, name, text string) {
		t.Helper()
		file := filepath.Join(v.dir, host, name)
		err := os.MkdirAll(filepath.Dir(file), 0o700)
		if err == nil {
			err = os.WriteFile(file, []byte(text+"\n"), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	file, text := filepath.Join(v.dir, "facts.yaml"), "hosts:\n"
	for i, esxi := range []string{"esx-a", "esx-a", "esx-a", "esx-b"} {
		name, session := fmt.Sprintf("host%d", i+1), fmt.Sprintf("0x%x", i+10)
		write(name, "session", session)
		text += fmt.Sprintf("  %s: {esxi: %s, session: '%s'}\n", name, esxi, session)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	const steps = 400
	j := c.follow("-v", "--ring-order", "topology", "--topology", file, "--algorithm", "ring", "--vmtoolsd", filepath.Join(v.dir, "vmtoolsd"),
		"-H", "host1,host2,host3,host4", python, "testdata/elastic/steps.py", "--steps", fmt.Sprint(steps), "--length", "4000", "--pause", "0.05")
	j.await(`epoch 1, ring: host1 → host2 → host3 → host4 → `)
	j.await(`host2: vSphere announces moves of this machine`)
	j.await(`commit 10 epoch 1 size 4`)
	v.tell("host2", "start", 8001, "")
	j.await(`gorun: host2: ready to be moved, vSphere knows`)
	write("host2", "guestinfo.gorun.esxi", "esx-b")
	write("host2", "session", "0x77")
	v.tell("host2", "end", 8001, `,"opStatus":"success"`)
	j.await(`host2: after the pause its session is another one, esxi is esx-b, not esx-a`)
	j.await(`epoch 1, the ring changes while the job runs: it crosses 2 borders less`)
	if err := j.cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, j.out)
	}
	c.expectNothingLeft(5 * time.Second)
	rings, _ := j.out.find(`epoch 1, ring: (.*)$`)
	if len(rings) != 2 || rings[1][1] != "host1 → host2 → host4 → host3 → (host1)" { // 1 and 3 are on the one, 2 and 4 on the other
		t.Errorf("rings %v", rings)
	}
	if done, _ := j.out.find(fmt.Sprintf(`done rank \d of 4: steps %d epoch 1 worlds 1 weights (\w+)$`, steps)); len(done) != 4 {
		t.Errorf("%d ranks are done in the world that they began in\n%s", len(done), j.out)
	}
}
