//go:build linux

package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"gorun/contrib/lab"
)

var (
	soak     = flag.Duration("soak", 3*time.Minute, "how long TestSoak strikes")
	long     = flag.Bool("long", false, "whether TestLongOutages has those of minutes, instead of others, and TestSoak does everything it can")
	soakSeed = flag.Uint64("soak-seed", 0, "what TestSoak does; 0: chosen by the clock, and printed")
)

// soaking is what TestSoak does to hosts: at most two of four are switched off at a time, and never the last that
// knows what was trained.
type soaking struct {
	*training
	rng    *rand.Rand
	list   *hostFile
	listed []int // hosts that the job may use
	down   []int // hosts that are switched off
	moves  int   // addresses that were given
	log    []string
	done   map[string]int // strikes by kind
}

func (s *soaking) say(format string, args ...any) {
	s.log = append(s.log, time.Now().Format("05.000 ")+fmt.Sprintf(format, args...))
}

// must notes an error of the lab itself: a strike that did not happen is no test.
func (s *soaking) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Errorf("%v\n%s", err, strings.Join(s.log, "\n"))
	}
}

// strike does one random thing.
func (s *soaking) strike() {
	var up []int
	for h := 1; h <= 4; h++ {
		if !slices.Contains(s.down, h) {
			up = append(up, h)
		}
	}
	s.rng.Shuffle(len(up), func(i, j int) { up[i], up[j] = up[j], up[i] })
	host, other := up[0], up[1]
	spared, bothSpared := s.survivors(host), s.survivors(host, other)
	short := time.Duration(100+s.rng.IntN(3000)) * time.Millisecond
	kinds := []string{"rank", "rank", "daemon", "off", "on", "freeze", "cut"}
	if *long {
		kinds = append(kinds, "power", "reset", "address", "two", "amid", "scale")
	}
	what := kinds[s.rng.IntN(len(kinds))]
	switch {
	case what == "rank" && spared:
		s.kill(host, "train.py")
	case what == "daemon" && spared:
		s.kill(host, "gorun worker --daemon")
	case what == "off" && spared && len(s.down) < 2:
		s.say("switch host%d off", host)
		s.must(s.Host(host).Kill())
		s.down = append(s.down, host)
	case what == "power" && spared && len(s.down) < 2:
		s.say("take the power of host%d", host)
		s.must(s.Host(host).PowerOff())
		s.down = append(s.down, host)
	case what == "on" && len(s.down) > 0:
		s.say("switch host%d on", s.down[0])
		s.must(s.Host(s.down[0]).Boot(s.t.Context()))
		s.down = s.down[1:]
	case what == "freeze":
		s.say("freeze host%d for %v", host, short)
		s.must(s.Host(host).Freeze())
		time.Sleep(short)
		s.must(s.Host(host).Thaw())
	case what == "reset":
		s.say("reset the connections of host%d", host)
		conns, err := s.Host(host).Connections()
		s.must(err)
		for _, c := range conns {
			_, err := s.Host(host).Reset(c)
			s.must(err)
		}
	case what == "address":
		s.moves++
		address := netip.AddrFrom4([4]byte{10, 77, 0, byte(100 + s.moves%100)})
		s.say("give host%d the address %v", host, address)
		s.must(s.Host(host).SetAddress(address))
	case what == "two" && bothSpared:
		s.kill(host, "train.py")
		s.kill(other, "gorun worker --daemon")
	case what == "amid" && bothSpared:
		worlds, _ := s.out.find(`^gorun: epoch \d+: `)
		s.kill(host, "train.py")
		for limit := time.Now().Add(10 * time.Second); time.Now().Before(limit); time.Sleep(5 * time.Millisecond) {
			if now, _ := s.out.find(`^gorun: epoch \d+: `); len(now) > len(worlds) {
				break
			}
		}
		s.kill(other, "train.py")
	case what == "scale":
		s.use(s.rng.Perm(4)[:2+s.rng.IntN(3)])
	default:
		what = "cut"
		s.say("cut host%d off for %v", host, short)
		s.must(s.Host(host).Cut())
		time.Sleep(short)
		s.must(s.Host(host).Heal())
	}
	s.done[what]++
}

// use has the job use these hosts, counted from 0.
func (s *soaking) use(hosts []int) {
	var names []string
	s.listed = nil
	for _, h := range hosts {
		s.listed = append(s.listed, h+1)
		names = append(names, fmt.Sprintf("host%d:1", h+1))
	}
	s.say("use %v", names)
	s.list.say(names...)
}

// survivors tells whether a process on another host than some, which is to stay, holds what was trained so far: without any,
// it is lost.
func (s *soaking) survivors(hosts ...int) bool {
	for _, h := range s.listed {
		if slices.Contains(hosts, h) || slices.Contains(s.down, h) {
			continue
		}
		for _, p := range s.Host(h).Processes() {
			if number := processNumber(p); number != "" && s.out.has(fmt.Sprintf(`process %s is rank`, number)) {
				return true
			}
		}
	}
	return false
}

// processNumber is that of a rank's process in its job, "" for others.
func processNumber(p lab.Process) string {
	environ, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p.PID))
	if number := regexp.MustCompile(`(?:^|\x00)GORUN_PROCESS=(\d+)\x00`).FindSubmatch(environ); number != nil {
		return string(number[1])
	}
	return ""
}

// kill ends a process of a host if there is one: it may be between two lives.
func (s *soaking) kill(host int, args string) {
	for _, p := range s.Host(host).Processes() {
		if strings.Contains(p.Args, args) {
			s.say("kill %d (%s) on host%d", p.PID, args, host)
			if err := syscall.Kill(p.PID, syscall.SIGKILL); err != nil && err != syscall.ESRCH {
				s.must(err)
			}
			return
		}
	}
}

// TestSoak trains while hosts, daemons and ranks die, freeze and are cut off; in make soak they also die two at once and while
// the next world is formed, lose power and connections, get other addresses, and come and go by a script. It ends with the
// weights of a job that nobody disturbed.
func TestSoak(t *testing.T) {
	needTorch(t)
	c := newCluster(t, 4)
	seed := *soakSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("to do the same again: make soak SOAK=%v SEED=%d", *soak, seed)
	s := &soaking{list: c.hostFile(), rng: rand.New(rand.NewPCG(seed, 0)), done: map[string]int{}}
	s.use([]int{0, 1, 2, 3})
	s.training = c.trainOn("--min-np", "1", "--lease", "8", "--blacklist-cooldown-range", "1", "4",
		"--host-discovery-script", "cat "+s.list.name)
	// A host's sshd keeps a connection to an address that is gone until TCP gives it up.
	s.idle = func() { c.expectLeft(10*time.Second, "sshd: ") }
	defer func() {
		if !t.Failed() {
			return
		}
		file := c.root + "/build/soak." + strconv.FormatUint(seed, 10)
		if err := os.WriteFile(file, []byte(strings.Join(s.log, "\n")+"\n\n"+s.out.String()), 0o600); err == nil {
			t.Logf("what was done and said is in %s", file)
		}
	}()
	s.await(`batch 20$`)
	for end := time.Now().Add(*soak); time.Now().Before(end); {
		s.strike()
		time.Sleep(time.Duration(s.rng.IntN(4000)) * time.Millisecond)
	}
	for _, h := range s.down {
		s.must(c.Host(h).Boot(t.Context()))
	}
	s.use([]int{0, 1, 2, 3})
	worlds, _ := s.out.find(`gorun: epoch (\d+): `)
	t.Logf("%d strikes, %d worlds: %v", len(s.log), len(worlds)+1, s.done)
	told := func() int { found, _ := s.out.find(`batch \d+$`); return len(found) }
	before := told()
	watchdog := time.AfterFunc(10*time.Minute, func() { s.cmd.Process.Signal(syscall.SIGTERM) })
	defer watchdog.Stop()
	for limit := time.Now().Add(5 * time.Minute); told() < before+20; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatal("training does not go on after all that")
		}
	}
	s.enough()
	s.finish(-1)
}
