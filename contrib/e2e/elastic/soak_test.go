package elastic

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

	"gorun/contrib/e2e/e2etest"
	"gorun/contrib/lab"
)

var soak = flag.Duration("soak", 0, "how long TestSoak strikes; 0: 25 s in short tests, 3 min in others")

var soakSeed = flag.Uint64("soak-seed", 0, "what TestSoak does; 0: chosen by the clock, and printed")

// soakLease is the job's, which no outage of a host exceeds by itself, though several may together.
const soakLease = 8 * time.Second

// settling is how long after an outage that is over a host is heard again for sure: connections that are silent for
// four seconds are tried beside.
const settling = 3 * time.Second

// soaking is what TestSoak does to hosts: at most two of four are switched off at a time, and never the last that
// knows what was trained.
type soaking struct {
	*e2etest.Training
	rng    *rand.Rand
	list   *e2etest.HostFile
	listed []int             // hosts that the job may use
	down   []int             // hosts that are switched off
	moves  int               // addresses that were given
	done   map[string]int    // strikes by kind
	steady map[int]time.Time // from when on a host that was out of reach can stand another outage within the lease
}

// say notes what is done among the lines of the job.
func (s *soaking) say(format string, args ...any) {
	if s.Training != nil {
		s.Out.Note("soak: " + fmt.Sprintf(format, args...))
	}
}

// must notes an error of the lab itself: a strike that did not happen is no test.
func (s *soaking) must(err error) {
	s.T.Helper()
	if err != nil {
		s.T.Errorf("%v\n%s", err, s.lastOutput())
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
	stands := spared || time.Now().After(s.steady[host]) // an outage
	short := time.Duration(100+s.rng.IntN(3000)) * time.Millisecond
	kinds := []string{"rank", "rank", "daemon", "off", "on", "freeze", "cut", "power", "reset", "address", "two", "amid", "scale"}
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
		s.must(s.Host(s.down[0]).Boot(s.T.Context()))
		s.down = s.down[1:]
	case what == "freeze" && stands:
		s.say("freeze host%d for %v", host, short)
		s.must(s.Host(host).Freeze())
		time.Sleep(short)
		s.must(s.Host(host).Thaw())
		s.steady[host] = time.Now().Add(settling)
	case what == "reset" && stands:
		s.say("reset the connections of host%d", host)
		conns, err := s.Host(host).Connections()
		s.must(err)
		for _, c := range conns {
			_, err := s.Host(host).Reset(c)
			s.must(err)
		}
		s.steady[host] = time.Now().Add(settling)
	case what == "address" && stands:
		s.moves++
		address := netip.AddrFrom4([4]byte{10, 77, 0, byte(100 + s.moves%100)})
		s.say("give host%d the address %v", host, address)
		s.must(s.Host(host).SetAddress(address))
		s.steady[host] = time.Now().Add(soakLease) // the launcher learns it only by looking the name up when it doubts
	case what == "two" && bothSpared:
		s.kill(host, "train.py")
		s.kill(other, "gorun worker --daemon")
	case what == "amid" && bothSpared:
		worlds, _ := s.Out.Find(`^gorun: epoch \d+: `)
		s.kill(host, "train.py")
		for limit := time.Now().Add(10 * time.Second); time.Now().Before(limit); time.Sleep(5 * time.Millisecond) {
			if now, _ := s.Out.Find(`^gorun: epoch \d+: `); len(now) > len(worlds) {
				break
			}
		}
		s.kill(other, "train.py")
	case what == "scale":
		s.use(s.rng.Perm(4)[:2+s.rng.IntN(3)])
	case stands:
		what = "cut"
		s.say("cut host%d off for %v", host, short)
		s.must(s.Host(host).Cut())
		time.Sleep(short)
		s.must(s.Host(host).Heal())
		s.steady[host] = time.Now().Add(settling)
	default:
		return
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
	s.list.Say(names...)
}

// survivors reports whether a process on another host than some, which is to stay and was not out of reach a moment
// ago, holds what was trained so far: without any, it is lost.
func (s *soaking) survivors(hosts ...int) bool {
	for _, h := range s.listed {
		if slices.Contains(hosts, h) || slices.Contains(s.down, h) || time.Now().Before(s.steady[h]) {
			continue
		}
		for _, p := range s.Host(h).Processes() {
			if number := processNumber(p); number != "" && s.Out.Has(fmt.Sprintf(`process %s is rank`, number)) {
				return true
			}
		}
	}
	return false
}

// processNumber returns the number of a rank's process in its job, "" for other processes.
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

// TestSoak trains while hosts, daemons and ranks die, one or two at once or while the next world is formed, freeze and
// are cut off, lose power and connections, get other addresses, and come and go by a script. Soon after the last of it
// all hosts train again. It ends with the weights of a job that no one disturbed.
func TestSoak(t *testing.T) {
	c := e2etest.NewCluster(t, 4)
	if *soak == 0 && testing.Short() {
		*soak = 25 * time.Second
	} else if *soak == 0 {
		*soak = 3 * time.Minute
	}
	seed := *soakSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("to do the same again: make soak SOAK=%v SEED=%d", *soak, seed)
	s := &soaking{list: c.HostFile(), rng: rand.New(rand.NewPCG(seed, 0)), done: map[string]int{}, steady: map[int]time.Time{}}
	s.use([]int{0, 1, 2, 3})
	s.Training = c.TrainOn("--min-np", "1", "--lease", fmt.Sprint(soakLease.Seconds()), "--blacklist-cooldown-range", "1", "4",
		"--host-discovery-script", "cat "+s.list.Name)
	// A host's sshd keeps a connection to an address that is gone until TCP gives it up.
	s.Idle = func() { c.ExpectLeft(10*time.Second, "sshd: ") }
	defer func() {
		file := c.Root + "/build/soak." + strconv.FormatUint(seed, 10)
		if err := os.WriteFile(file, []byte(s.Out.String()), 0o600); err == nil {
			t.Logf("what was done and said is in %s", file)
		}
	}()
	s.Await(`batch 20$`)
	for end := time.Now().Add(*soak); time.Now().Before(end) && !s.Ended(); {
		s.strike()
		time.Sleep(time.Duration(s.rng.IntN(4000)) * time.Millisecond)
	}
	for _, h := range s.down {
		s.must(c.Host(h).Boot(t.Context()))
	}
	s.use([]int{0, 1, 2, 3})
	struck := time.Now()
	worlds, _ := s.Out.Find(`^gorun: epoch \d+: (\d)`)
	t.Logf("%d worlds, %v", len(worlds)+1, s.done)
	// What was struck last is lost when its lease is over and others have been asked, and may be tried again after its
	// cooldown.
	all := func() bool {
		worlds, _ := s.Out.Find(`^gorun: epoch \d+: (\d)`)
		return len(worlds) == 0 || worlds[len(worlds)-1][1] == "4"
	}
	told := func() int { found, _ := s.Out.Find(`batch \d+$`); return len(found) }
	for before := -1; before < 0 || told() < before+20; time.Sleep(100 * time.Millisecond) {
		switch {
		case !all():
			before = -1
		case before < 0:
			before = told()
		}
		if s.Ended() || time.Since(struck) > time.Minute {
			s.Cmd.Process.Signal(syscall.SIGTERM)
			err := s.Cmd.Wait()
			t.Fatalf("%v after the last strike not all four hosts train: %v\n%s", time.Since(struck), err, s.lastOutput())
		}
	}
	t.Logf("%v after the last strike all four hosts train again", time.Since(struck).Round(time.Millisecond))
	s.Enough()
	watchdog := time.AfterFunc(10*time.Minute, func() { s.Cmd.Process.Signal(syscall.SIGTERM) })
	defer watchdog.Stop()
	s.End(-1)
}

// lastOutput are the last lines of the job but for its batches, which are many, and of what was done to it.
func (s *soaking) lastOutput() string {
	lines := slices.DeleteFunc(strings.Split(s.Out.String(), "\n"), regexp.MustCompile(`batch \d+$`).MatchString)
	return strings.Join(lines[max(0, len(lines)-60):], "\n")
}
