package pmi_test

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"gorun/contrib/must"
	"gorun/worker/pmi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rank is a client.
type rank struct {
	t    *testing.T
	conn net.Conn
	r    *bufio.Reader
}

func (c *rank) ask(line string) string {
	c.t.Helper()
	c.send(line)
	return c.hear()
}

func (c *rank) send(line string) {
	c.t.Helper()
	if _, err := fmt.Fprintln(c.conn, line); err != nil {
		c.t.Fatal(err)
	}
}

func (c *rank) hear() string {
	c.t.Helper()
	c.conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	s, err := c.r.ReadString('\n')
	if err != nil {
		c.t.Fatalf("read answer: %v", err)
	}
	return strings.TrimSuffix(s, "\n")
}

// cluster is servers of several hosts, with what carries their fences.
type cluster struct {
	t       *testing.T
	hosts   [][]int
	servers []*pmi.Server
	mu      sync.Mutex
	arrived int
	pairs   map[string]string
	aborts  []string
	stuck   []string
	names   map[string]string
	wg      sync.WaitGroup
}

func newCluster(t *testing.T, hosts ...[]int) *cluster {
	c := &cluster{t: t, hosts: hosts, pairs: map[string]string{}, names: map[string]string{}}
	size := 0
	for _, ranks := range hosts {
		size += len(ranks)
	}
	for _, ranks := range hosts {
		c.servers = append(c.servers, pmi.New(pmi.Config{Job: "j", Size: size, Hosts: hosts, Local: ranks, Programs: map[int]int{1: 1}, Fence: c.fence,
			Abort: func(rank, code int, message string) {
				c.mu.Lock()
				defer c.mu.Unlock()
				c.aborts = append(c.aborts, fmt.Sprintf("rank %d: %d %s", rank, code, message))
			},
			Stuck: func(ended int, waiting []int) {
				c.mu.Lock()
				defer c.mu.Unlock()
				c.stuck = append(c.stuck, fmt.Sprintf("%v wait for %d", waiting, ended))
			}, Name: c.name}))
	}
	t.Cleanup(func() {
		for _, s := range c.servers {
			s.Close()
		}
		c.wg.Wait()
	})
	return c
}

// name keeps the names of all hosts. It answers later, as a launcher does, and nothing to who asks about "never".
func (c *cluster) name(rank int, asks, service, port string) {
	if service == "never" {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	found, known := c.names[service]
	switch asks {
	case "publish":
		if !known {
			c.names[service] = port
		}
		known = !known
	case "unpublish":
		delete(c.names, service)
	}
	for i, s := range c.servers {
		if slices.Contains(c.hosts[i], rank) {
			c.wg.Go(func() { s.Named(rank, known, found) })
		}
	}
}

func (c *cluster) fence(number uint64, pairs map[string]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.Copy(c.pairs, pairs)
	if c.arrived++; c.arrived < len(c.servers) {
		return
	}
	c.arrived = 0
	all := c.pairs
	c.pairs = map[string]string{}
	for _, s := range c.servers {
		c.wg.Go(func() { s.Release(number, all) })
	}
}

func (c *cluster) connect(host, number int) *rank {
	ends := pair(c.t)
	ours, theirs := ends[0], ends[1]
	c.servers[host].Serve(number, theirs)
	c.t.Cleanup(func() { ours.Close() })
	return &rank{c.t, ours, bufio.NewReader(ours)}
}

// pair returns the two ends of a connection that, unlike net.Pipe, holds what is not read yet.
func pair(t *testing.T) (ends [2]net.Conn) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must.Do(t, err)
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pmi")
		if ends[i], err = net.FileConn(f); err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	return ends
}

func TestConversation(t *testing.T) {
	c := newCluster(t, []int{0})
	r := c.connect(0, 0)
	for _, x := range []struct{ ask, want string }{
		{"cmd=init pmi_version=1 pmi_subversion=1", "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0"},
		{"cmd=init pmi_version=1 pmi_subversion=2", "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0"},
		{"cmd=get_maxes", "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024"},
		{"cmd=get_appnum", "cmd=appnum appnum=0"},
		{"cmd=get_my_kvsname", "cmd=my_kvsname kvsname=gorun_j"},
		{"cmd=get_universe_size", "cmd=universe_size size=1"},
		{"cmd=get kvsname=gorun_j key=PMI_process_mapping", "cmd=get_result rc=0 msg=success value=(vector,(0,1,1))"},
		{"cmd=put kvsname=gorun_j key=a value=x y=z  w ", "cmd=put_result rc=0 msg=success"},
		{"cmd=get kvsname=gorun_j key=a", "cmd=get_result rc=0 msg=success value=x y=z  w "},
		{"cmd=put kvsname=other key=a value=x", "cmd=put_result rc=-1 msg=no_such_kvsname"},
		{"cmd=put kvsname=gorun_j key=" + strings.Repeat("k", 65) + " value=x", "cmd=put_result rc=-1 msg=key_or_value_too_long"},
		{"cmd=put kvsname=gorun_j key=k value=" + strings.Repeat("v", 1025), "cmd=put_result rc=-1 msg=key_or_value_too_long"},
		{"cmd=get kvsname=gorun_j key=b", "cmd=get_result rc=-1 msg=key_b_not_found value=unknown"},
		{"cmd=barrier_in", "cmd=barrier_out"},
		{"cmd=get kvsname=gorun_j key=a", "cmd=get_result rc=0 msg=success value=x y=z  w "},
		{"cmd=publish_name service=s port=p", "cmd=publish_result info=ok rc=0 msg=success"},
		{"cmd=publish_name service=s port=q", "cmd=publish_result rc=1 msg=key_already_present"},
		{"cmd=lookup_name service=s", "cmd=lookup_result port=p info=ok rc=0 msg=success"},
		{"cmd=unpublish_name service=s", "cmd=unpublish_result info=ok rc=0 msg=success"},
		{"cmd=unpublish_name service=s", "cmd=unpublish_result rc=1 msg=service_not_found"},
		{"cmd=lookup_name service=s", "cmd=lookup_result rc=1 msg=service_not_found"},
		{"mcmd=spawn\nnprocs=1\nendcmd", "cmd=spawn_result rc=-1 msg=not_supported"},
		{"cmd=dance", "cmd=dance_result rc=-1 msg=unknown_command"},
		{"cmd=finalize", "cmd=finalize_ack"},
	} {
		if got := r.ask(x.ask); got != x.want {
			t.Errorf("%s\n got %s\nwant %s", x.ask, got, x.want)
		}
	}
}

// What a rank published is known on all hosts after a fence, and no one passes the fence early.
func TestFence(t *testing.T) {
	hosts := [][]int{{0, 1}, {2}, {3, 4, 5}}
	c := newCluster(t, hosts...)
	ranks := make([]*rank, 6)
	for h, numbers := range hosts {
		for _, n := range numbers {
			ranks[n] = c.connect(h, n)
		}
	}
	for round := range 3 {
		for n, r := range ranks {
			r.ask(fmt.Sprintf("cmd=put kvsname=gorun_j key=k%d-%d value=%d", round, n, 10*round+n))
		}
		for _, r := range ranks[1:] {
			r.send("cmd=barrier_in")
		}
		must.Do(t, ranks[1].conn.SetReadDeadline(time.Now().Add(20*time.Millisecond)))
		if b, err := ranks[1].r.Peek(1); err == nil {
			t.Fatalf("round %d: rank 1 passed without rank 0: %q", round, b)
		}
		ranks[0].send("cmd=barrier_in")
		for n, r := range ranks {
			if got := r.hear(); got != "cmd=barrier_out" {
				t.Fatalf("round %d, rank %d: %s", round, n, got)
			}
		}
		for n, r := range ranks {
			for other := range ranks {
				want := fmt.Sprintf("cmd=get_result rc=0 msg=success value=%d", 10*round+other)
				if got := r.ask(fmt.Sprintf("cmd=get kvsname=gorun_j key=k%d-%d", round, other)); got != want {
					t.Errorf("round %d, rank %d asks for rank %d: %s", round, n, other, got)
				}
			}
		}
	}
}

func TestAbort(t *testing.T) {
	c := newCluster(t, []int{0, 1})
	r := c.connect(0, 1)
	r.send("cmd=abort exitcode=7 message=out of luck")
	if got := r.ask("cmd=get_appnum"); got != "cmd=appnum appnum=1" {
		t.Errorf("asked for its program: %s", got)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.aborts) != 1 || c.aborts[0] != "rank 1: 7 out of luck" {
		t.Errorf("aborts: %q", c.aborts)
	}
}

// TestLeft: a rank that has sent init leaves MPI by finalize; what it sent last may be read after it has ended.
func TestLeft(t *testing.T) {
	const hello = "cmd=init pmi_version=1 pmi_subversion=1\n"
	for name, tc := range map[string]struct {
		said string
		left bool
	}{
		"nothing":             {"", true},
		"no init":             {"cmd=get_maxes\n", true},
		"init":                {hello, false},
		"init and finalize":   {hello + "cmd=finalize\n", true},
		"half a finalize":     {hello + "cmd=fina", false},
		"many words, and all": {hello + strings.Repeat("cmd=get_maxes\n", 1000) + "cmd=finalize\n", true},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, []int{0, 1})
			r := c.connect(0, 1)
			if tc.said != "" {
				r.send(strings.TrimSuffix(tc.said, "\n"))
				r.hear() // the server has read the first of it
			}
			go io.Copy(io.Discard, r.conn)
			r.conn.(*net.UnixConn).CloseWrite()
			if left := c.servers[0].Left(1); left != tc.left {
				t.Errorf("it has left: %v", left)
			}
		})
	}
}

// TestStuckFence: ranks that wait for one of their host that has ended are reported, once, whatever comes first.
func TestStuckFence(t *testing.T) {
	stuck := func(c *cluster) string {
		c.mu.Lock()
		defer c.mu.Unlock()
		return strings.Join(c.stuck, ";")
	}
	t.Run("it ends while they wait", func(t *testing.T) {
		c := newCluster(t, []int{0, 1, 2, 3})
		for _, n := range []int{2, 0} {
			r := c.connect(0, n)
			r.send("cmd=barrier_in")
			r.ask("cmd=get_maxes")
		}
		if got := stuck(c); got != "" {
			t.Errorf("before any has ended: %q", got)
		}
		c.servers[0].Ended(1)
		c.servers[0].Ended(3)
		if got := stuck(c); got != "[0 2] wait for 1" {
			t.Errorf("%q", got)
		}
	})
	t.Run("they come later", func(t *testing.T) {
		c := newCluster(t, []int{0, 1})
		r := c.connect(0, 0)
		c.servers[0].Ended(1)
		if got := stuck(c); got != "" {
			t.Errorf("nobody waits: %q", got)
		}
		r.send("cmd=barrier_in")
		r.ask("cmd=get_maxes")
		if got := stuck(c); got != "[0] wait for 1" {
			t.Errorf("%q", got)
		}
	})
}

func TestRefuses(t *testing.T) {
	for name, line := range map[string]string{
		"a line without end": strings.Repeat("x", 5000),
		"a zero byte":        "cmd=init\x00\n",
		"a second barrier":   "cmd=barrier_in\ncmd=barrier_in\n",
		"a second question":  "cmd=lookup_name service=never\ncmd=lookup_name service=never\n",
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, []int{0, 1})
			r := c.connect(0, 0)
			go r.conn.Write([]byte(line)) // ends with the connection
			r.conn.SetReadDeadline(time.Now().Add(20 * time.Second))
			if s, err := r.r.ReadString('\n'); err == nil {
				t.Errorf("answered %q", s)
			} else if e, ok := err.(net.Error); ok && e.Timeout() {
				t.Error("the connection is still open")
			}
		})
	}
}

func TestMapping(t *testing.T) {
	for want, hosts := range map[string][][]int{
		"(vector,(0,1,4))":                 {{0, 1, 2, 3}},
		"(vector,(0,2,4))":                 {{0, 1, 2, 3}, {4, 5, 6, 7}},
		"(vector,(0,1,4),(1,1,2))":         {{0, 1, 2, 3}, {4, 5}},
		"(vector,(0,3,1),(0,3,1))":         {{0, 3}, {1, 4}, {2, 5}},
		"(vector,(1,1,1),(0,1,1),(2,1,1))": {{1}, {0}, {2}},
	} {
		if got := pmi.Mapping(hosts, 1024); got != want {
			t.Errorf("%v: %s, want %s", hosts, got, want)
		}
	}
	var hosts [][]int
	for r := range 1000 {
		hosts = append(hosts, []int{999 - r})
	}
	if got := pmi.Mapping(hosts, 1024); got != "" {
		t.Errorf("a long mapping: %s", got)
	}
}
