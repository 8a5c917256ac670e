package topology

import (
	"fmt"
	"strings"
	"testing"

	"gorun/contrib/e2e/e2etest"
	"gorun/contrib/lab"
)

// TestRDMADevices: two of four hosts have a device for RDMA, a stand-in for libibverbs that also shows in
// /sys/class/infiniband. In a job, what counts between the two hosts is the speed of the slower port: here it is less than
// that of a NIC, so the ring avoids it. topo shows the port with its address, and doctor its state.
func TestRDMADevices(t *testing.T) {
	s := e2etest.NewStandin(t)
	c := e2etest.NewClusterWith(t, 4, lab.Options{Share: []string{s.Dir}, Class: s.Class(2)})
	s.Show(c.Host(1), "4: ACTIVE", 100)
	s.Show(c.Host(2), "4: ACTIVE", 5)
	defer s.Fault("without", fmt.Sprintln(c.Host(3).Address(), c.Host(4).Address()))()
	expect := func(text string, want ...string) {
		t.Helper()
		for _, w := range want {
			if !strings.Contains(text, w) {
				t.Errorf("%q is not in\n%s", w, text)
			}
		}
	}
	flags := append([]string{"-v", "-np", "4", "-H", "host1,host2,host3,host4"}, s.Flags()...)
	const sum = "import numpy as np, gorun.numpy as hvd; hvd.init(); print(hvd.allreduce(np.ones(8), op=hvd.Sum)[:1])"
	r := c.Gorun(append(flags, e2etest.Python, "-c", sum)...)
	expect(r.Stderr, "epoch 1, ring: host1 → host3 → host2 → host4 → (host1)")
	if testing.Short() { // what the others read is tested in topology/probe and topology/doctor
		return
	}

	r = c.Gorun("topo", "-H", "host2", "--ascii")
	text := strings.Join(strings.FieldsFunc(r.Stdout, func(c rune) bool { return c == ' ' || c == '|' || c == '\n' }), " ")
	expect(text, "port 1 RoCE v2 5 Gbit/s, GID 2 (10.77.0.2)")
	s.Show(c.Host(2), "1: DOWN", 5)
	r = c.Gorun("doctor", "-H", "host1,host2")
	expect(r.Stdout, "standin0 port 1 active", "standin0 port 1 is DOWN", "standin0 port 1: eth0 has 1500, so a packet has 1024 bytes or less")
}
