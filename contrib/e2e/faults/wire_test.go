package faults

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"gorun/contrib/e2e/e2etest"
	"gorun/contrib/lab"
	"gorun/contrib/must"
)

// retransmitted is how many TCP segments a host has sent again.
func retransmitted(c *e2etest.Cluster, host int) int {
	c.T.Helper()
	out, err := c.Host(host).Exec(c.T.Context(), "cat", "/proc/net/snmp")
	found := regexp.MustCompile(`(?m)^Tcp: (?:-?\d+ ){11}(\d+)`).FindStringSubmatch(out)
	if err != nil || found == nil {
		c.T.Fatalf("no count of retransmissions: %v\n%s", err, out)
	}
	n, _ := strconv.Atoi(found[1])
	return n
}

// TestDamagingNetwork: on a wire that damages TCP segments in a way that TCP's checksum does not see, sums of large
// tensors are right, unless --checksum=false lets them be wrong. gorun reports between which addresses data is damaged,
// how often, and what to do without.
func TestDamagingNetwork(t *testing.T) {
	c := e2etest.NewCluster(t, 2)
	told := regexp.MustCompile(`(?m)^gorun: (host[12]): data from (host[12]) came damaged, \d+ times? so far, and was sent again: ` +
		`between 10\.77\.0\.[12] there and 10\.77\.0\.[12].* here a NIC, a switch or a hypervisor is broken, or somebody changes it(; .* run without --checksum=false)?$`)
	for flag, share := range map[string]float64{"--report-bindings": 0.002, "--encrypt": 0.002, "--checksum=false": 0.01} { // the first does nothing for it
		wire, err := c.AddWire(c.Host(1), c.Host(2), lab.Faults{Damaged: share}, 1)
		must.Do(t, err)
		r := c.Within(4*time.Minute, "bench", flag, "-v", "-H", "host1,host2", "-b", "4", "-e", "4M", "-f", "32", "--iters", "10")
		wire.Close()
		lines := told.FindAllStringSubmatch(r.Stderr, -1)
		t.Logf("%s: %d segments were damaged, told in %d lines", flag, wire.Damaged.Load(), len(lines))
		wrong := len(e2etest.Rows(r.Stdout)) != 5 || slices.ContainsFunc(e2etest.Rows(r.Stdout), func(row string) bool { return !strings.HasSuffix(row, " 0") })
		safe := flag != "--checksum=false"
		if wrong == safe || safe && r.Code != 0 || len(lines) == 0 || (lines[0][3] == "") != safe ||
			!regexp.MustCompile(`connections were renewed \d+ times?, \d+ times? because data came damaged`).MatchString(r.Stderr) {
			t.Errorf("%s: exit code %d\n%s%s", flag, r.Code, r.Stdout, r.Stderr)
		}
	}
}

// TestHostileRelay: somebody on the path, without the job's key, changes objects that ranks unpickle. Ranks get what was
// sent all the same, or nothing.
func TestHostileRelay(t *testing.T) {
	programs := map[string]string{"horovod": `import gorun.numpy as hvd
hvd.init()
for size in 100000, 1000, 1:
	print(hvd.broadcast_object("GOOD WORD " * size, 0)[-20:], size, flush=True)`, "torch": `import torch.distributed as dist, gorun.torch.distributed
dist.init_process_group("gorun")
for size in 100000, 1000, 1:
	got = ["GOOD WORD " * size]
	dist.broadcast_object_list(got, 0)
	print(got[0][-20:], size, flush=True)`}
	c := e2etest.NewCluster(t, 2)
	wire, err := c.AddWire(c.Host(1), c.Host(2), lab.Faults{Replace: [2]string{"GOOD WORD", "EVIL WORD"}}, 1)
	must.Do(t, err)
	defer wire.Close()
	for name, program := range programs {
		t.Run(name, func(t *testing.T) {
			if name == "torch" {
				e2etest.NeedTorch(t)
			}
			before := wire.Replaced.Load()
			cmd, stdout, stderr := c.Command("-np", "2", "-H", "host1,host2", "--no-tag-output", e2etest.Python, "-c", program)
			must.Do(t, cmd.Start())
			// What is changed on each of its ways never arrives.
			c.Await("an attack to be found", func() bool { return stderr.Count("came damaged") > 0 || stdout.Count("EVIL") > 0 })
			cmd.Process.Signal(syscall.SIGTERM)
			cmd.Wait()
			if changed := wire.Replaced.Load() - before; changed == 0 || strings.Contains(stdout.String()+stderr.String(), "EVIL") {
				t.Errorf("%d packets were changed\n%s%s", changed, stdout, stderr)
			}
			c.ExpectNothingLeft(10 * time.Second)
		})
	}
}

// TestLossyNetwork: two hosts train over a wire that is long, loses packets, delivers some of them twice and lets
// others overtake them. The weights equal an undisturbed job's in every bit.
func TestLossyNetwork(t *testing.T) {
	const batches = 12
	c := e2etest.NewCluster(t, 2)
	want := c.UndisturbedDescent(batches)
	wire, err := c.AddWire(c.Host(1), c.Host(2), lab.Faults{Lost: 0.02, Doubled: 0.02, Late: 0.02, Delay: 2 * time.Millisecond, Lateness: 5 * time.Millisecond}, 1)
	must.Do(t, err)
	t.Cleanup(func() { wire.Close() })
	before := retransmitted(c, 1) + retransmitted(c, 2)
	began := time.Now()
	d := c.Descend(batches, "0")
	d.ExpectWeights(want)
	sent, again, renewed := d.Carried()
	retransmitted := retransmitted(c, 1) + retransmitted(c, 2) - before
	t.Logf("%v for %d batches; of the packets %d were lost, %d delivered twice and %d late; TCP sent %d segments again, links %.0f of %.0f bytes, and renewed %.0f connections",
		time.Since(began).Round(time.Millisecond), batches, wire.Lost.Load(), wire.Doubled.Load(), wire.Late.Load(), retransmitted, again, sent, renewed)
	if min(wire.Lost.Load(), wire.Doubled.Load(), wire.Late.Load()) < 50 || retransmitted < 50 {
		t.Error("the wire did little to them")
	}
}
