//go:build linux

package main

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// descent is testdata/resilience/descend.py under way, one rank on each host.
type descent struct {
	*training
}

// descend starts it.
func (c *cluster) descend(batches int, pause string, args ...string) *descent {
	c.t.Helper()
	var hosts string
	for i := range c.Hosts() {
		hosts += fmt.Sprintf(",host%d:1", i+1)
	}
	args = append([]string{"-v", "-H", hosts[1:]}, args...)
	j := c.follow(append(args, python, "testdata/resilience/descend.py", "--batches", strconv.Itoa(batches), "--pause", pause)...)
	j.batches = batches
	return &descent{j}
}

// reach waits for a batch.
func (d *descent) reach(batch int) {
	d.t.Helper()
	d.await(fmt.Sprintf(`batch %d$`, batch))
}

// weights waits for the end, checks that the world stayed the same, and returns the hash of all ranks' weights.
func (d *descent) weights() string {
	d.t.Helper()
	if err := d.cmd.Wait(); err != nil {
		d.t.Fatalf("%v\n%s", err, d.out)
	}
	d.idle()
	found, _ := d.out.find(`rank \d+ has (\w+)`)
	if len(found) != len(d.Hosts()) || d.out.has(`(is lost|epoch [2-9])`) {
		d.t.Fatalf("the world did not stay as it was:\n%s", d.out)
	}
	for _, f := range found {
		if f[1] != found[0][1] {
			d.t.Fatalf("ranks differ:\n%s", d.out)
		}
	}
	return found[0][1]
}

// carried returns what the end of the job says of its links.
func (d *descent) carried() (sent, again, renewed float64) {
	d.t.Helper()
	found, _ := d.out.find(`between hosts: sent (\d+) bytes, and (\d+) bytes again in \d+ segments?; connections were renewed (\d+) times?`)
	if len(found) != 1 {
		d.t.Fatalf("what the links carried is not told:\n%s", d.out)
	}
	var n [3]float64
	for i := range n {
		n[i], _ = strconv.ParseFloat(found[0][i+1], 64)
	}
	return n[0], n[1], n[2]
}

// intervals are the times between batches, of those that ended in [from, to).
func (d *descent) intervals(from, to time.Time) []time.Duration {
	_, at := d.out.find(`batch \d+$`)
	var out []time.Duration
	for i := 1; i < len(at); i++ {
		if !at[i].Before(from) && at[i].Before(to) {
			out = append(out, at[i].Sub(at[i-1]))
		}
	}
	slices.Sort(out)
	return out
}

func median(sorted []time.Duration) time.Duration { return sorted[len(sorted)/2] }

// undisturbedDescent is the hash of a job on these hosts that nobody disturbs.
func (c *cluster) undisturbedDescent(batches int) string {
	c.t.Helper()
	d := c.descend(batches, "0")
	w := d.weights()
	if _, again, renewed := d.carried(); again != 0 || renewed != 0 {
		c.t.Logf("undisturbed, %.0f bytes were sent again and %.0f connections renewed: the machine is busy", again, renewed)
	}
	return w
}

// TestBrokenStreams: connections break 200 times while hosts train, one at a time or all at once. The weights are those
// of an undisturbed job, bit for bit.
func TestBrokenStreams(t *testing.T) {
	const breaks, batches = 200, 1000
	c := newCluster(t, 2)
	want := c.undisturbedDescent(batches)
	rng := rand.New(rand.NewPCG(1, 2))
	d := c.descend(batches, "0")
	broken := 0
	for batch := 1; broken < breaks && batch < batches; batch++ {
		d.reach(batch)
		victim := c.Host(1 + rng.IntN(2))
		conns, err := victim.Connections()
		if err != nil {
			t.Fatal(err)
		}
		rng.Shuffle(len(conns), func(i, j int) { conns[i], conns[j] = conns[j], conns[i] })
		if rng.IntN(10) > 0 {
			conns = conns[:min(1, len(conns))]
		}
		for _, conn := range conns {
			gone, err := victim.Reset(conn)
			if err != nil {
				t.Fatal(err)
			}
			if gone {
				broken++
			}
		}
	}
	if got := d.weights(); got != want {
		t.Errorf("the weights are %s, undisturbed they are %s\n%s", got, want, d.out)
	}
	sent, again, renewed := d.carried()
	t.Logf("%d connections were broken in %d batches and %.0f renewed; of %.0f bytes %.0f were sent again (%.2f %%)",
		broken, batches, renewed, sent, again, 100*again/sent)
	if broken < breaks {
		t.Errorf("only %d connections were broken", broken)
	}
	if renewed < 0.9*float64(broken) {
		t.Errorf("%.0f connections were renewed", renewed)
	}
	if again > sent {
		t.Errorf("more was sent again than at first")
	}
}

// strikes are what a network, or a hypervisor, does to host 2 of two, and how it ends.
var strikes = map[string]func(*cluster) (begin, end func() error){
	"host 2 is not heard": func(c *cluster) (begin, end func() error) {
		return func() error { return c.Host(2).Mute(c.Host(1)) }, func() error { return c.Host(2).Unmute(c.Host(1)) }
	},
	"host 1 is not heard": func(c *cluster) (begin, end func() error) {
		return func() error { return c.Host(1).Mute(c.Host(2)) }, func() error { return c.Host(1).Unmute(c.Host(2)) }
	},
	"network card down": func(c *cluster) (begin, end func() error) { return c.Host(2).Unplug, c.Host(2).Plug },
	"cable out":         func(c *cluster) (begin, end func() error) { return c.Host(2).Cut, c.Host(2).Heal },
	"frozen":            func(c *cluster) (begin, end func() error) { return c.Host(2).Freeze, c.Host(2).Thaw },
}

// TestPaths: whatever a network does to a host for some seconds, training goes on at once after it with every bit in its
// place. What is lost is the outage and at most half a second.
func TestPaths(t *testing.T) {
	for name := range strikes {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, 2)
			const batches = 300
			want := c.undisturbedDescent(batches)
			d := c.descend(batches, "0.02", "--lease", "60")
			d.reach(20)
			d.strike(name, 300*time.Millisecond, 5)
			d.strike(name, 3*time.Second, 3)
			if got := d.weights(); got != want {
				t.Errorf("the weights are %s, undisturbed they are %s\n%s", got, want, d.out)
			}
		})
	}
}

// TestLongOutages: hosts that are away for longer than connections outlive go on as soon, and nobody takes them for dead
// before their lease has ended.
func TestLongOutages(t *testing.T) {
	type outage struct {
		name  string
		lasts time.Duration
		times int
		args  []string
	}
	outages := []outage{
		{"cable out", 10 * time.Second, 3, nil},
		{"frozen", 10 * time.Second, 3, nil},
		{"frozen", 25 * time.Second, 3, nil},
		{"frozen", 45 * time.Second, 1, []string{"--lease", "60"}},
	}
	if *long {
		outages = []outage{
			{"frozen", 150 * time.Second, 1, []string{"--lease", "240"}},
			{"cable out", 150 * time.Second, 1, []string{"--lease", "240"}}, // the launcher's connection is given up meanwhile
		}
	}
	for _, tc := range outages {
		t.Run(fmt.Sprintf("%s for %v", tc.name, tc.lasts), func(t *testing.T) {
			c := newCluster(t, 2)
			const batches = 150
			want := c.undisturbedDescent(batches)
			d := c.descend(batches, "0.02", tc.args...)
			d.reach(20)
			d.strike(tc.name, tc.lasts, tc.times)
			if got := d.weights(); got != want {
				t.Errorf("the weights are %s, undisturbed they are %s\n%s", got, want, d.out)
			}
		})
	}
}

// strike has several outages of one kind, and fails if what was lost beyond them is more than half a second in most.
func (d *descent) strike(name string, lasts time.Duration, times int) {
	d.t.Helper()
	begin, end := strikes[name](d.cluster)
	var lost []time.Duration
	for range times {
		lost = append(lost, d.outage(begin, end, lasts))
	}
	slices.Sort(lost)
	usual := median(d.intervals(time.Time{}, time.Now()))
	d.t.Logf("%s for %v: lost beyond it %v; a batch takes %v", name, lasts, lost, usual.Round(time.Millisecond))
	allowed := 500*time.Millisecond + 5*usual // 30 ms on a machine with nothing else to do
	if name == "cable out" && lasts < time.Second || times == 1 {
		// Hosts have forgotten each other's hardware address, for which kernels ask once a second: without a carrier from
		// its beginning on, and without answers some time later. Of several tries most are not that unlucky.
		allowed += time.Second
	}
	if lasts > 2*time.Minute { // gorun may have to log in again, to hear of the next batch
		allowed += 2 * time.Second
	}
	if got := median(lost); got > allowed {
		d.t.Errorf("lost beyond an outage of %v: %v, more than %v in most", lasts, lost, allowed)
	}
}

// outage has one, and returns how long after its end the next batch came.
func (d *descent) outage(begin, end func() error, lasts time.Duration) time.Duration {
	d.t.Helper()
	struck := time.Now()
	if err := begin(); err != nil {
		d.t.Fatal(err)
	}
	time.Sleep(time.Until(struck.Add(lasts))) // this is what is tested
	if err := end(); err != nil {
		d.t.Fatal(err)
	}
	healed := time.Now()
	// What was under way, or written, when it began may come a little later.
	if during := d.intervals(struck, healed); lasts >= time.Second && len(during) > 2 {
		d.t.Errorf("%d batches ended in an outage of %v, which was none", len(during), lasts)
	}
	for deadline := healed.Add(60 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		_, at := d.out.find(`batch \d+$`)
		if i := slices.IndexFunc(at, func(t time.Time) bool { return t.After(healed) }); i >= 0 {
			lost := at[i].Sub(healed).Round(time.Millisecond)
			d.reach(i + 12) // with everything as it was
			return lost
		}
		if time.Now().After(deadline) {
			d.cmd.Process.Kill()
			d.t.Fatalf("no batch within a minute:\n%s", d.out)
		}
	}
}

// TestAddressChange: hosts get other addresses while they train. Links come back over these, the launcher finds the
// hosts by their names, no rank is started again, and every bit is in its place.
func TestAddressChange(t *testing.T) {
	for name, moves := range map[string]map[int]string{ // by the numbers of hosts; 0 is the launcher's
		"one host":         {2: "10.77.0.72"},
		"the first host":   {1: "10.77.0.71"},
		"both at one time": {1: "10.77.0.71", 2: "10.77.0.72"},
		"the launcher's":   {0: "10.77.0.70"},
	} {
		t.Run(name, func(t *testing.T) {
			const batches = 100
			c := newCluster(t, 2)
			want := c.undisturbedDescent(batches)
			d := c.descend(batches, "0.05")
			// A host's sshd keeps a connection to an address that is gone until TCP gives it up.
			d.idle = func() { c.expectLeft(5*time.Second, "sshd: ") }
			d.reach(batches / 4)
			struck := time.Now()
			for host, address := range moves {
				h := c.Launcher()
				if host > 0 {
					h = c.Host(host)
				}
				if err := h.SetAddress(netip.MustParseAddr(address)); err != nil {
					t.Fatal(err)
				}
			}
			healed := time.Now()
			// The launcher hears of the next batch when it has found the host again; the ranks say what they lost.
			d.await(`rank \d+ has`)
			t.Logf("the launcher heard nothing for %v", d.silence().Round(time.Millisecond))
			if got := d.weights(); got != want {
				t.Errorf("the weights are %s, undisturbed they are %s\n%s", got, want, d.out)
			}
			waits, _ := d.out.find(`rank \d+ waited for ([0-9.]+) s at most, usually for ([0-9.]+) s`)
			if len(waits) != 2 {
				t.Fatalf("ranks do not say how long they waited:\n%s", d.out)
			}
			for _, w := range waits {
				longest, _ := strconv.ParseFloat(w[1], 64)
				usual, _ := strconv.ParseFloat(w[2], 64)
				t.Logf("%s; addresses were without a host for %v", w[0], healed.Sub(struck).Round(time.Millisecond))
				// Some 0.1 s on a quiet machine, and 0.2 s if both move: they find each other by their names, which they
				// try a little later. The launcher would need 4 s of silence to look for them.
				const allowed = 0.5
				if longest > allowed+20*usual {
					t.Errorf("%s, want at most %.1f s and 20 times what is usual", w[0], allowed)
				}
			}
		})
	}
}

// TestNoNetworkForAMoment: a host whose only network is down for a moment says nowhere that it is found at its own loopback
// address, in a job that others may join, and trains on when it is back.
func TestNoNetworkForAMoment(t *testing.T) {
	c := newCluster(t, 2)
	list := c.hostFile("host1:1", "host2:1")
	j := c.count(nil, "-v", "-np", "2", "--min-np", "1", "--host-discovery-script", "cat "+list.name)
	j.await(`commit 10 epoch 1 size 2`)
	j.must(c.Host(2).Unplug())
	time.Sleep(500 * time.Millisecond) // what a daemon hears from the kernel at once
	j.must(c.Host(2).Plug())
	j.await(`commit 20 epoch 1 size 2`)
	j.counted(2)
	if found, _ := j.out.find(`is found at .* now`); len(found) > 0 {
		t.Errorf("it says %q\n%s", found, j.out)
	}
}

// TestLauncherConnectionBreaks: the connections of gorun, or of the system's ssh in its place, to its hosts break, one after the
// other, and the job goes on as if nothing had been.
func TestLauncherConnectionBreaks(t *testing.T) {
	for name, flags := range map[string][]string{"own": nil, "system's": {"--ssh-command", "ssh"}} {
		t.Run(name, func(t *testing.T) {
			const batches = 60
			c := newCluster(t, 2)
			want := c.undisturbedDescent(batches)
			d := c.descend(batches, "0.05", flags...)
			killed := map[int]bool{}
			for n := range 4 {
				d.reach(10 * (n + 1))
				host := 1 + n%2
				c.await(fmt.Sprintf("other sshd of gorun on host%d", host), func() bool {
					for _, p := range c.Host(host).Processes() {
						if p.Inner != 1 && strings.HasPrefix(p.Args, "sshd: root") && !killed[p.PID] {
							killed[p.PID] = true
							return syscall.Kill(p.PID, syscall.SIGKILL) == nil
						}
					}
					return false
				})
			}
			if got := d.weights(); got != want {
				t.Errorf("the weights are %s, undisturbed they are %s\n%s", got, want, d.out)
			}
			if found, _ := d.out.find(`batch \d+$`); len(found) != batches {
				t.Errorf("the launcher heard of %d batches, want %d\n%s", len(found), batches, d.out)
			}
			t.Logf("%d connections were killed", len(killed))
		})
	}
}

// silence is the longest time between two batches.
func (d *descent) silence() time.Duration {
	all := d.intervals(time.Time{}, time.Now())
	return all[len(all)-1]
}
