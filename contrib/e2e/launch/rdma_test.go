package launch

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"gorun/contrib/e2e/e2etest"
	"gorun/contrib/lab"
)

// allSums prints a digest of allreduces from 4 B to 16 MiB.
const allSums = `import hashlib, numpy as np, gorun.numpy as hvd
hvd.init()
h = hashlib.sha256()
for turn in range(%d):
    for n in (1, 3, 1000, 70_000, 262_144, 1 << 20, 1 << 22):
        rng = np.random.default_rng([hvd.rank(), turn, n])
        h.update(hvd.allreduce(rng.standard_normal(n, dtype=np.float32), name=f"x{n}").tobytes())
print("digest", h.hexdigest())`

var (
	digestLine = regexp.MustCompile(`digest ([0-9a-f]{64})`)
	overRDMA   = regexp.MustCompile(`between hosts: sent (\d+) bytes \((\d+) over RDMA\)`)
	// The host that gives up first says it; the other one may find the queue pair of the first gone.
	noPackets = regexp.MustCompile(`host[12]: data to host[12] goes over TCP, not RDMA: packets over the queue pair do not arrive; UDP port 4791`)
)

// rdmaJobs are jobs over the stand-in for libibverbs.
type rdmaJobs struct {
	*e2etest.Cluster
	standin *e2etest.Standin
}

func rdmaCluster(t *testing.T) rdmaJobs {
	t.Helper()
	s := e2etest.NewStandin(t)
	return rdmaJobs{e2etest.NewClusterWith(t, 3, lab.Options{Share: []string{s.Dir}}), s}
}

// run sums so many times on three hosts, and returns a digest of the results, and what gorun said.
func (c rdmaJobs) run(t *testing.T, turns int, flags ...string) (digest, text string) {
	t.Helper()
	// Without a name the algorithm follows from what hosts measure, and with it the order in which floats are added.
	args := append([]string{"-v", "-np", "4", "-H", "host1:2,host2,host3", "--algorithm", "ring"}, flags...)
	r := c.Gorun(append(args, e2etest.Python, "-c", fmt.Sprintf(allSums, turns))...)
	found := digestLine.FindAllStringSubmatch(r.Stdout, -1)
	if r.Code != 0 || len(found) != 4 {
		t.Fatalf("exit code %d, %d ranks ended well\n%s%s", r.Code, len(found), r.Stdout, r.Stderr)
	}
	for _, f := range found {
		if f[1] != found[0][1] {
			t.Errorf("ranks have different sums\n%s", r.Stdout)
		}
	}
	return found[0][1], r.Stderr
}

// operations returns what every operation gives, with up to so many elements, and what gorun said.
func (c rdmaJobs) operations(t *testing.T, most int, flags ...string) (results, text string) {
	t.Helper()
	args := append([]string{"-v", "-np", "4", "-H", "host1:2,host2,host3", "--algorithm", "ring"}, flags...)
	r := c.Gorun(append(args, e2etest.Python, "-c", e2etest.Operations(t), strconv.Itoa(most))...).Good(t)
	return e2etest.Results(t, r.Stdout, 4), r.Stderr
}

// end checks that nothing is left.
func (c rdmaJobs) end() {
	c.ExpectNothingLeft(10e9)
	if left := c.standin.Left(); len(left) > 0 {
		c.T.Errorf("%v are left", left)
	}
}

// TestRDMA runs jobs over a stand-in for libibverbs: the sums have the bits that they have over TCP, also while queue
// pairs break within operations; then streams go on by TCP, and no rank starts again. Where RDMA is impossible, one line
// says why and the job goes over TCP, on these hosts alone.
func TestRDMA(t *testing.T) {
	t.Parallel()
	c := rdmaCluster(t)
	want, text := c.run(t, 2)
	if strings.Contains(text, "RDMA") {
		t.Errorf("without --rdma:\n%s", text)
	}
	flags := c.standin.Flags()
	t.Run("sums", func(t *testing.T) {
		got, text := c.run(t, 2, flags...)
		if got != want {
			t.Errorf("the sums are not those over TCP")
		}
		if m := overRDMA.FindStringSubmatch(text); m == nil || m[1] != m[2] || !strings.Contains(text, "goes over RDMA: standin0 port 1, RoCE v2") {
			t.Errorf("not everything went over RDMA\n%s", text)
		}
	})
	t.Run("kills", func(t *testing.T) {
		defer c.standin.Fault("kill", "40")()
		got, text := c.run(t, 2, append([]string{"--rdma-options", "rest=1ms"}, flags...)...)
		if got != want {
			t.Errorf("the sums are not those over TCP")
		}
		if m := overRDMA.FindStringSubmatch(text); m == nil || !strings.Contains(text, "queue pair failed") || !strings.Contains(text, "; queue pairs failed ") {
			t.Errorf("nothing went over RDMA, or no queue pair broke\n%s", text)
		}
		t.Logf("%d queue pairs broke\n%s", c.standin.Killed(), text)
	})
	t.Run("mixed", func(t *testing.T) {
		defer c.standin.Fault("without", c.Host(3).Address().String())()
		got, text := c.run(t, 2, flags...)
		if got != want {
			t.Errorf("the sums are not those over TCP")
		}
		m := overRDMA.FindStringSubmatch(text)
		if m == nil || m[1] == m[2] || !strings.Contains(text, "host3: data goes over TCP, not RDMA: no RDMA device; load its driver, pass it to containers") {
			t.Errorf("not both, RDMA between host1 and host2 and TCP to host3\n%s", text)
		}
	})
	t.Run("obstacles", func(t *testing.T) {
		defer c.standin.Fault("memlock", "")()
		defer c.standin.Fault("denied", c.Host(2).Address().String())()
		// The first process of a host is its sshd, whose limits its sessions have.
		if out, err := c.Host(1).Exec(t.Context(), "prlimit", "--pid", "1", "--memlock=65536:65536"); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		_, text := c.run(t, 1, flags...)
		for _, want := range []string{
			"host1: data to host3 goes over TCP, not RDMA: open queue pair on standin0 port 1: register memory: cannot allocate memory: " +
				`the limit of locked memory is 64 KiB; put "* - memlock unlimited" into /etc/security/limits.d/rdma.conf`,
			"host2: data goes over TCP, not RDMA: standin0: open device: permission denied; let this user write /dev/infiniband/uverbs*",
		} {
			if strings.Count(text, want) != 1 {
				t.Errorf("the output has %q %d times\n%s", want, strings.Count(text, want), text)
			}
		}
	})
	t.Run("other subnets", func(t *testing.T) {
		defer c.standin.Fault("subnet", "32")()
		_, text := c.run(t, 1, flags...)
		if overRDMA.MatchString(text) || !noPackets.MatchString(text) {
			t.Errorf("the output does not say that no packets arrive\n%s", text)
		}
	})
	if testing.Short() { // the others are no other way through the program
		c.end()
		return
	}
	t.Run("operations", func(t *testing.T) {
		const most = 1 << 22 // 16 MiB
		want, _ := c.operations(t, most)
		got, text := c.operations(t, most, flags...)
		if got != want {
			t.Errorf("over TCP the results are\n%s\nover RDMA\n%s", want, got)
		}
		if m := overRDMA.FindStringSubmatch(text); m == nil || m[1] != m[2] {
			t.Errorf("not everything went over RDMA\n%s", text)
		}
		defer c.standin.Fault("kill", "40")()
		before := c.standin.Killed()
		got, text = c.operations(t, most, append([]string{"--rdma-options", "rest=1ms"}, flags...)...)
		if broke := c.standin.Killed() - before; got != want || broke == 0 {
			t.Errorf("over TCP the results are\n%s\nover RDMA, where %d queue pairs broke\n%s\n%s", want, broke, got, text)
		}
	})
	for name, x := range map[string]struct {
		flags []string
		want  string
	}{
		"no device":    {[]string{"--rdma", "on"}, "data goes over TCP, not RDMA: no RDMA device (/dev/infiniband/uverbs*); load ib_uverbs"},
		"no library":   {[]string{"--rdma", "on", "--rdma-library", "/no/libibverbs.so.1"}, "data goes over TCP, not RDMA: load libibverbs: "},
		"other device": {[]string{"--rdma", "mlx5_0", "--rdma-library", c.standin.Library}, "goes over TCP, not RDMA: no RDMA device mlx5_0; this host has standin0"},
	} {
		t.Run(name, func(t *testing.T) {
			got, text := c.run(t, 1, x.flags...)
			if !strings.Contains(text, x.want) || overRDMA.MatchString(text) {
				t.Errorf("digest %s; the output lacks %q\n%s", got, x.want, text)
			}
		})
	}
	t.Run("encrypted", func(t *testing.T) {
		got, text := c.run(t, 2, append([]string{"--encrypt"}, flags...)...)
		if got != want {
			t.Errorf("the sums are not those over TCP")
		}
		if m := overRDMA.FindStringSubmatch(text); m == nil || m[1] != m[2] || !strings.Contains(text, "links are encrypted") {
			t.Errorf("not everything went over RDMA\n%s", text)
		}
	})
	t.Run("port down", func(t *testing.T) {
		defer c.standin.Fault("down", "")()
		if _, text := c.run(t, 1, flags...); !strings.Contains(text, "not RDMA: standin0 port 1 is down; see rdma link and gorun doctor") {
			t.Errorf("the port is down:\n%s", text)
		}
	})
	c.end()
}

// TestRDMAKills breaks 1,000 queue pairs within operations.
func TestRDMAKills(t *testing.T) {
	if testing.Short() {
		t.Skip("a part of make test-all: it takes a minute or two")
	}
	c := rdmaCluster(t)
	const turns = 20
	want, _ := c.run(t, turns)
	defer c.standin.Fault("kill", "20")()
	for runs := 1; c.standin.Killed() < 1000; runs++ {
		got, text := c.run(t, turns, append([]string{"--rdma-options", "rest=1ms"}, c.standin.Flags()...)...)
		if got != want {
			t.Error("the sums are not those over TCP")
		}
		t.Logf("%d queue pairs broke so far; %s", c.standin.Killed(), overRDMA.FindString(text))
		if runs == 10 {
			t.Fatalf("only %d queue pairs broke in %d runs", c.standin.Killed(), runs)
		}
	}
	c.end()
}
