package elastic

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"gorun/contrib/e2e/e2etest"
	"gorun/contrib/lab"
	"gorun/rendezvous/liveness"
)

var trials = flag.Int("trials", 5, "how many jobs TestTrials disturbs")

var trialSeed = flag.Uint64("trial-seed", 1, "which jobs and faults TestTrials begins with")

const trialHosts = 3

const trialLease = 10 * time.Second

const trialOutage = 2500 * time.Millisecond // the longest one that a job survives, within the lease

const trialLimit = 100 * time.Second // of one job, whose work takes some seconds

const trialsPerLab = 5

// A trial is one job and what happens to it.
type trial struct {
	*e2etest.Training
	rng     *rand.Rand
	elastic bool
	shell   bool
	ranks   int
	plan    []string
	codes   []int // that the job may end with; nil if the launcher is killed
	off     []int // hosts to boot again
	moved   []int // hosts that have another address
	next    bool  // the next job on the hosts ends what this one has left
}

// A blow happens to a job once.
type blow struct {
	name   string
	strike func(*trial, int) // a host
	codes  []int             // exit statuses of a job that is not elastic
	spares bool              // elastic jobs survive it if another host has a rank
}

// harmless blows are over before the lease is.
var harmless = []blow{
	{name: "stop a rank", strike: func(j *trial, h int) { j.stop(h, j.program()) }},
	{name: "stop a daemon", strike: func(j *trial, h int) { j.stop(h, "gorun worker") }},
	{name: "stop the launcher", strike: func(j *trial, _ int) { j.pause(j.Cmd.Process.Pid) }},
	{name: "freeze", strike: func(j *trial, h int) { j.outage(j.Host(h).Freeze, j.Host(h).Thaw) }},
	{name: "cut", strike: func(j *trial, h int) { j.outage(j.Host(h).Cut, j.Host(h).Heal) }},
	{name: "unplug", strike: func(j *trial, h int) { j.outage(j.Host(h).Unplug, j.Host(h).Plug) }},
	{name: "cut the launcher", strike: func(j *trial, _ int) { j.outage(j.Launcher().Cut, j.Launcher().Heal) }},
	{name: "reset", strike: func(j *trial, h int) { j.reset(h) }},
	{name: "mute", strike: func(j *trial, h int) {
		other := j.Host(1 + h%trialHosts)
		j.outage(func() error { return j.Host(h).Mute(other) }, func() error { return j.Host(h).Unmute(other) })
	}},
	{name: "address", strike: (*trial).move},
}

// lethal blows end a job that is not elastic.
var lethal = []blow{
	{"kill a rank", func(j *trial, h int) { j.killAll(h, j.program(), 1) }, []int{137}, true},
	{"end a rank", func(j *trial, h int) { j.signal(h, j.program(), 1, syscall.SIGTERM) }, []int{143}, true},
	{"kill all ranks of a host", func(j *trial, h int) { j.killAll(h, j.program(), -1) }, []int{137}, true},
	{"kill a daemon", func(j *trial, h int) { j.killAll(h, "gorun worker --daemon", 1) }, []int{255}, true},
	{"kill supervisor and daemon", func(j *trial, h int) { j.killAll(h, "gorun worker", -1) }, []int{255, 137}, true},
	{"kill everything", func(j *trial, h int) { j.must(j.Host(h).Kill()); j.off = append(j.off, h) }, []int{255}, true},
	{"power off", func(j *trial, h int) { j.must(j.Host(h).PowerOff()); j.off = append(j.off, h) }, []int{255}, true},
	{"interrupt", func(j *trial, _ int) { j.must(j.Cmd.Process.Signal(syscall.SIGINT)) }, []int{130}, false},
	{"terminate", func(j *trial, _ int) { j.must(j.Cmd.Process.Signal(syscall.SIGTERM)) }, []int{143}, false},
	{"kill launcher, supervisor and daemon at once", func(j *trial, h int) {
		for _, pid := range append(j.pids(h, "gorun worker"), j.Cmd.Process.Pid) {
			syscall.Kill(pid, syscall.SIGKILL) // it may have ended
		}
		j.next = true
	}, nil, false},
	{"kill the launcher", func(j *trial, _ int) { j.must(j.Cmd.Process.Kill()) }, nil, false},
}

// say notes what happens among the job's own lines.
func (j *trial) say(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	j.plan = append(j.plan, line)
	j.Out.Note("-- " + line)
}

// must fails the test on an error of the lab: a blow that missed tests nothing.
func (j *trial) must(err error) {
	if err != nil && !j.Ended() {
		j.T.Errorf("%v: %v", j.plan, err)
	}
}

// program is a part of the ranks' command lines.
func (j *trial) program() string {
	if j.shell {
		return "trial of a shell"
	}
	return "steps.py"
}

func (j *trial) pids(host int, args string) (pids []int) {
	for _, p := range j.Host(host).Processes() {
		if p.State != 'Z' && strings.Contains(p.Args, args) {
			pids = append(pids, p.PID)
		}
	}
	return pids
}

// signal sends a signal to so many processes of a host whose command lines contain a text, or to all of them.
func (j *trial) signal(host int, args string, most int, number syscall.Signal) {
	pids := j.pids(host, args)
	if most > 0 {
		pids = pids[:min(most, len(pids))]
	}
	for _, pid := range pids {
		syscall.Kill(pid, number) // it may have ended
	}
}

func (j *trial) killAll(host int, args string, most int) { j.signal(host, args, most, syscall.SIGKILL) }

func (j *trial) pause(pid int) {
	syscall.Kill(pid, syscall.SIGSTOP)
	time.Sleep(j.short())
	syscall.Kill(pid, syscall.SIGCONT)
}

func (j *trial) stop(host int, args string) {
	if pids := j.pids(host, args); len(pids) > 0 {
		j.pause(pids[j.rng.IntN(len(pids))])
	}
}

func (j *trial) short() time.Duration {
	return time.Duration(50+j.rng.Int64N(trialOutage.Milliseconds()-50)) * time.Millisecond
}

func (j *trial) outage(begin, end func() error) {
	j.must(begin())
	time.Sleep(j.short())
	j.must(end())
}

func (j *trial) reset(host int) {
	for _, list := range []func() ([]lab.Conn, error){j.Host(host).Connections, j.Host(host).Logins} {
		conns, err := list()
		j.must(err)
		for _, c := range conns {
			_, err := j.Host(host).Reset(c)
			j.must(err)
		}
	}
}

func (j *trial) move(host int) {
	j.moved = append(j.moved, host)
	j.must(j.Host(host).SetAddress(netip.AddrFrom4([4]byte{10, 77, 0, byte(100 + j.rng.IntN(100))})))
}

// begin starts a random job.
func begin(c *e2etest.Cluster, rng *rand.Rand) *trial {
	c.T.Helper()
	j := &trial{rng: rng, elastic: rng.IntN(2) == 0, ranks: trialHosts * (1 + rng.IntN(2))}
	j.shell = !j.elastic && rng.IntN(3) == 0
	slots := j.ranks / trialHosts
	args := []string{"--lease", trialLease.String(), "--start-timeout", "20", "-np", fmt.Sprint(j.ranks),
		"-H", fmt.Sprintf("host1:%d,host2:%d,host3:%d", slots, slots, slots)}
	if j.elastic {
		how := []string{"replace", "shrink", "wait"}[rng.IntN(3)]
		args = append(args, "--min-np", "1", "--on-failure", how, "--elastic-timeout", "30", "--blacklist-cooldown-range", "1", "2")
	}
	if rng.IntN(4) == 0 {
		args = append(args, "--encrypt")
	}
	if j.shell {
		// Every rank leaves children, one of them in a session of its own.
		args = append(args, "sh", "-c", `: trial of a shell; sleep 1000 & setsid sleep 1000 & for i in $(seq 60); do echo "line $i of it"; sleep 0.05; done; echo done weights of a shell`)
	} else {
		length := []int{10, 1000, 300_000}[rng.IntN(3)]
		args = append(args, e2etest.Python, "testdata/elastic/steps.py", "--steps", "120", "--pause", "0.02", "--length", fmt.Sprint(length))
	}
	j.plan = append(j.plan, strings.Join(args[:len(args)-2], " "))
	j.Training = c.Follow(args...)
	j.codes = []int{0}
	return j
}

// disturb strikes up to three times, at random moments, also while the job starts, and then waits for its end.
func (j *trial) disturb(counts map[string]int) {
	for range j.rng.IntN(4) {
		b := harmless[j.rng.IntN(len(harmless))]
		j.strike(b, 1+j.rng.IntN(trialHosts), counts)
	}
	if j.rng.IntN(2) == 0 {
		b := lethal[j.rng.IntN(len(lethal))]
		host := 2 + j.rng.IntN(trialHosts-1) // the first host keeps what was trained
		if j.elastic && b.spares && !j.Out.Has(`commit \d+ epoch`) {
			j.Await(`commit \d+ epoch|gorun: error`) // no rank has anything to keep before that
		}
		j.strike(b, host, counts)
		if !j.elastic || !b.spares {
			j.codes = b.codes
		}
	}
}

func (j *trial) strike(b blow, host int, counts map[string]int) {
	time.Sleep(time.Duration(j.rng.IntN(1500)) * time.Millisecond)
	if j.Ended() {
		return
	}
	j.say("%s, host%d", b.name, host)
	b.strike(j, host)
	j.say("that is over")
	counts[b.name]++
}

// finish checks how the job ends, and that nothing of it is left.
func (j *trial) finish(seed uint64) {
	watchdog := time.AfterFunc(trialLimit, func() { j.Cmd.Process.Signal(syscall.SIGQUIT); j.Cmd.Process.Kill() })
	err := j.Cmd.Wait()
	hung := !watchdog.Stop()
	for _, h := range j.off {
		if err := j.Host(h).Boot(j.T.Context()); err != nil {
			j.T.Errorf("boot: %v", err)
		}
	}
	complain := func(format string, args ...any) {
		j.T.Errorf("trial %d: %s\n%v: %v\n%s", seed, fmt.Sprintf(format, args...), j.plan, err, j.Out)
	}
	code := j.Cmd.ProcessState.ExitCode()
	ends, _ := j.Out.Find(`done (?:rank \d+ of (\d+): steps 120 .*)?weights (\w+)`)
	same := !slices.ContainsFunc(ends, func(e []string) bool { return e[2] != ends[0][2] })
	switch {
	case hung:
		complain("no end within %v", trialLimit)
	case j.Out.Has(`panic: |goroutine \d+ \[`):
		complain("a program of gorun crashed")
	case j.codes == nil:
	// A job that was through before the blow ends well.
	case code == 0 && (len(ends) == 0 || !same || !j.elastic && len(ends) != j.ranks):
		complain("%d ranks of %d ended well, same weights: %v", len(ends), j.ranks, same)
	case code != 0 && !slices.Contains(j.codes, code):
		complain("exit status %d, want one of %v", code, j.codes)
	case code != 0 && !j.Out.Has(`^gorun: (error: )?\S`):
		complain("no word why")
	}
	for _, h := range j.moved {
		if old := netip.AddrFrom4([4]byte{10, 77, 0, byte(h)}); j.Host(h).Address() != old {
			j.must(j.Host(h).SetAddress(old))
		}
	}
	if j.next {
		if r := j.GorunBeside("-np", "3", "-H", "host1:1,host2:1,host3:1", "true"); r.Code != 0 {
			complain("the next job fails: %+v", r)
		}
	}
	before := j.T.Failed()
	within := trialLease + 10*time.Second
	if j.codes == nil {
		// A host that was cut off from its launcher notices by the silence that the launcher is gone.
		within = liveness.Default().Launcher(trialLease) + 15*time.Second
	}
	j.ExpectNothingLeft(within)
	if j.T.Failed() && !before {
		complain("it left something behind")
	}
}

// TestTrials runs jobs of random kinds, strikes each at random, and holds every one to the same rules: it ends in time, with
// the right result or with an exit status that fits what happened, and leaves nothing behind. A trial can be repeated by its
// number, as far as the machine repeats its timing.
func TestTrials(t *testing.T) {
	t.Parallel()
	for first := 0; first < *trials; first += trialsPerLab {
		t.Run(fmt.Sprint(*trialSeed+uint64(first)), func(t *testing.T) {
			c := e2etest.NewCluster(t, trialHosts)
			counts := map[string]int{}
			for n := first; n < min(first+trialsPerLab, *trials) && !t.Failed(); n++ {
				seed := *trialSeed + uint64(n)
				j := begin(c, rand.New(rand.NewPCG(seed, 21)))
				j.disturb(counts)
				j.finish(seed)
			}
			t.Logf("%v", counts)
		})
	}
}
