//go:build linux

package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
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
	long     = flag.Bool("long", false, "whether TestLongOutages has those of minutes, instead of others")
	soakSeed = flag.Uint64("soak-seed", 0, "what TestSoak does; 0: chosen by the clock, and printed")
)

// soaking is what TestSoak does to hosts: at most two of four are switched off at a time, and never the last that
// knows what was trained.
type soaking struct {
	*training
	rng  *rand.Rand
	down []int // hosts that are switched off
	log  []string
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
	host := up[s.rng.IntN(len(up))]
	spared := s.survivors(host)
	short := time.Duration(100+s.rng.IntN(3000)) * time.Millisecond
	switch what := s.rng.IntN(7); {
	case what <= 1 && spared:
		s.kill(host, "train.py")
	case what == 2 && spared:
		s.kill(host, "gorun worker")
	case what == 3 && spared && len(s.down) < 2:
		s.say("switch host%d off", host)
		s.must(s.Host(host).Kill())
		s.down = append(s.down, host)
	case what == 4 && len(s.down) > 0:
		s.say("switch host%d on", s.down[0])
		s.must(s.Host(s.down[0]).Boot(s.t.Context()))
		s.down = s.down[1:]
	case what == 5:
		s.say("freeze host%d for %v", host, short)
		s.must(s.Host(host).Freeze())
		time.Sleep(short)
		s.must(s.Host(host).Thaw())
	default:
		s.say("cut host%d off for %v", host, short)
		s.must(s.Host(host).Cut())
		time.Sleep(short)
		s.must(s.Host(host).Heal())
	}
}

// survivors tells whether a process on another host holds what was trained so far: without any, it is lost.
func (s *soaking) survivors(host int) bool {
	for h := 1; h <= 4; h++ {
		if h == host || slices.Contains(s.down, h) {
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

// TestSoak trains while hosts, daemons and ranks die, freeze and are cut off at random, and return. It ends with the
// weights of a job that nobody disturbed.
func TestSoak(t *testing.T) {
	needTorch(t)
	c := newCluster(t, 4)
	seed := *soakSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("to do the same again: make soak SOAK=%v SEED=%d", *soak, seed)
	s := &soaking{training: c.train(20*int(soak.Seconds()), "--min-np", "1", "--blacklist-cooldown-range", "1", "4",
		"-H", "host1:1,host2:1,host3:1,host4:1"), rng: rand.New(rand.NewPCG(seed, 0))}
	s.await(`batch 20$`)
	for end := time.Now().Add(*soak); time.Now().Before(end); {
		s.strike()
		time.Sleep(time.Duration(s.rng.IntN(4000)) * time.Millisecond)
	}
	for _, h := range s.down {
		s.must(c.Host(h).Boot(t.Context()))
	}
	worlds, _ := s.out.find(`gorun: epoch (\d+): `)
	t.Logf("%d strikes, %d worlds", len(s.log), len(worlds)+1)
	watchdog := time.AfterFunc(10*time.Minute, func() { s.cmd.Process.Signal(syscall.SIGTERM) })
	defer watchdog.Stop()
	s.finish(-1)
	if t.Failed() {
		file := c.root + "/build/soak." + strconv.FormatUint(seed, 10)
		if err := os.WriteFile(file, []byte(strings.Join(s.log, "\n")+"\n\n"+s.out.String()), 0o600); err == nil {
			t.Logf("what was done and said is in %s", file)
		}
	}
}
