package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
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

// away is a detached job of a cluster, seen from a machine that has no part in it.
type away struct {
	*e2etest.Lasting
	name string
}

// detach starts a detached job whose launcher is on host 2.
func detach(s *e2etest.Lasting, args ...string) *away {
	s.T.Helper()
	cmd, stdout, stderr := s.Command(slices.Concat(s.Args, []string{"--detach"}, args)...)
	if err := cmd.Run(); err != nil {
		s.T.Fatalf("%v\n%s", err, stderr)
	}
	return &away{s, strings.TrimSpace(stdout.String())}
}

// ask runs a command about the job, by way of the first host that answers.
func (a *away) ask(command string, args ...string) (string, int) {
	a.T.Helper()
	var out []byte
	code := -1
	for i := range a.Hosts() {
		if a.Daemons[i] == nil {
			continue
		}
		cmd := a.Launcher().Command(a.T.Context(), a.Binary, slices.Concat([]string{command}, args)...)
		cmd.Dir = a.Root
		cmd.Env = append(cmd.Env, "GORUN_CLUSTER="+a.Host(i+1).Name(), "GORUN_CLUSTER_KEY_FILE=/root/.ssh/key")
		out, _ = cmd.CombinedOutput()
		if code = cmd.ProcessState.ExitCode(); code == 0 {
			break
		}
	}
	return string(out), code
}

func (a *away) logs() string {
	out, _ := a.ask("logs", a.name)
	return out
}

// awaitLogs waits for a line of the job's present launcher.
func (a *away) awaitLogs(pattern string) []string {
	a.T.Helper()
	re := regexp.MustCompile("(?m)" + pattern)
	for deadline := time.Now().Add(120 * time.Second); ; time.Sleep(300 * time.Millisecond) {
		text := a.logs()
		if m := re.FindStringSubmatch(text); m != nil {
			return m
		}
		if time.Now().After(deadline) {
			ps, _ := a.ask("ps")
			var daemons strings.Builder
			for i, log := range a.Lasting.Logs {
				fmt.Fprintf(&daemons, "host%d:\n%s", i+1, log)
			}
			a.T.Fatalf("no line matches %s:\n%s\n%s\n%s", pattern, text, ps, &daemons)
		}
	}
}

// launcherOn is the process that speaks for the job.
func (a *away) launcherOn(host int) int {
	a.T.Helper()
	var pid int
	a.Await("launcher on host"+strconv.Itoa(host), func() bool {
		for _, p := range a.Host(host).Processes() {
			if strings.Contains(p.Args, " --detach ") {
				pid = p.PID
				return true
			}
		}
		return false
	})
	return pid
}

// TestTakeoverOfFixed: a job that is not elastic cannot go on by another launcher; an error names that, and it ends.
func TestTakeoverOfFixed(t *testing.T) {
	s := e2etest.NewLasting(t, 3)
	j := detach(s, "--lease", "3", "-np", "3", "-ppn", "1", e2etest.Python, "-c", e2etest.Busy)
	j.awaitLogs(`busy`)
	j.PowerOff(1)
	j.awaitLogs(`gorun: error: host2: run: the launcher of job host2/1, which ran there, is gone, and with it the job`)
	j.Await("word in ps", func() bool {
		out, _ := j.ask("ps")
		return strings.Contains(out, "host2/1") && regexp.MustCompile(`ended with 255 at [\d :-]+\d: .*, on host1`).MatchString(out)
	})
	if out, code := j.ask("logs", j.name); code != 0 || !strings.Contains(out, "hint: an elastic job is carried on by another host") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	j.Boot(1)
	s.ExpectIdle()
}

// TestDeserted: with its launcher a detached job loses so many of the hosts which decide who carries it on that no one
// can. One that is left shows how it ended, when its ranks have.
func TestDeserted(t *testing.T) {
	const chatty = "import time\nwhile True:\n    print(\"chatty\", flush=True)\n    time.sleep(0.1)"
	s := e2etest.NewLasting(t, 3)
	j := detach(s, "--lease", "3", "-np", "3", "--min-np", "1", "-ppn", "1", e2etest.Python, "-c", chatty)
	j.awaitLogs(`chatty`)
	attached, _, said := s.Command("attach", "--cluster", "host3", "--cluster-key-file", "/root/.ssh/key", j.name)
	seen := &e2etest.Record{}
	attached.Stdout = seen
	must.Do(t, attached.Start())
	t.Cleanup(func() { attached.Process.Kill(); attached.Wait() }) // whatever comes
	j.Await("output for who looks on", func() bool { return seen.Has(`chatty`) })
	s.Args[1] = "host3"
	left := detach(s, "--lease", "3", "-np", "3", "--min-np", "1", "-ppn", "1", e2etest.Python, "-c", chatty) // with its launcher where someone is left
	left.awaitLogs(`chatty`)
	j.PowerOff(1)
	j.PowerOff(0)
	const why = "too few hosts are left to elect its launcher (1 of 3)"
	ended := regexp.MustCompile(`ended with 255( at [\d :-]+\d)?: ` + regexp.QuoteMeta(why) + `, on host3`)
	j.Await("word in ps", func() bool {
		out, _ := j.ask("ps")
		return strings.Contains(out, "host2/1") && ended.MatchString(out)
	})
	left.Await("word in ps of the one whose launcher is left", func() bool {
		out, _ := left.ask("ps")
		return strings.Contains(out, left.name) && ended.MatchString(out)
	})
	j.Await("end of its ranks", func() bool { return !j.Runs(3, `print("chatty"`) }) // their host waits as long as the record
	if out, code := left.ask("logs", left.name); code != 0 || strings.Contains(out, "epoch 2") || !strings.Contains(out, "too few hosts answer to elect the job's launcher (1 of 3): nothing changes until more do") ||
		!strings.Contains(out, "gorun: error: too few hosts are left to elect the job's launcher (1 of 3): the job cannot go on without the lost ones") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	if out, code := j.ask("logs", j.name); code != 0 || !strings.Contains(out, "the launcher of job host2/1, which ran there, is gone, and with it the job: "+why) ||
		!strings.Contains(out, "hint: what it wrote is on host2; a cluster of five or more hosts survives the loss of two at once") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	if attached.Wait(); attached.ProcessState.ExitCode() != 255 {
		t.Errorf("who looked on has exit code %d\n%s\n%s", attached.ProcessState.ExitCode(), seen, said)
	}
	for i := range 2 {
		j.Boot(i)
	}
	// Host2 comes back without its records, and gives no name again that host3 shows.
	s.Await("cluster", func() bool { return strings.Count(s.Ps(), "0 of 2") == 3 })
	s.Args[1] = "host2"
	if again := detach(s, "-np", "1", "true"); again.name != "host2/2" {
		t.Errorf("another job of host2 is called %s", again.name)
	}
	s.ExpectIdle()
}

// TestKilledAtStart: the launcher of a detached job is killed before its ranks run. The user who starts the job reads
// that, and no launcher carries it on.
func TestKilledAtStart(t *testing.T) {
	s := e2etest.NewLasting(t, 3)
	j := &away{s, "host2/1"}
	must.Do(t, s.Host(3).Freeze())
	cmd, stdout, stderr := s.Command(slices.Concat(s.Args, []string{"--detach", "--lease", "3", "--min-np", "1", "--max-np", "3", "-ppn", "1", e2etest.Python, "-c", e2etest.Busy})...)
	must.Do(t, cmd.Start())
	launcher := j.launcherOn(2)
	j.Await("daemon on host1", func() bool { return s.Runs(1, "worker --daemon --resumable busy") }) // the launcher knows by then who decides
	must.Do(t, errors.Join(syscall.Kill(launcher, syscall.SIGKILL), s.Host(3).Thaw()))
	cmd.Wait()
	const want = "gorun: error: host2: start job: the launcher was killed by SIGKILL before its ranks ran\n" +
		"gorun: hint: if memory ran out there, dmesg says so; hosts of an elastic job keep its slots a minute longer than its --lease (auto: three minutes), which gorun ps shows\n"
	if code := cmd.ProcessState.ExitCode(); code != 1 || stdout.String() != "" || !strings.HasSuffix(stderr.String(), want) {
		t.Errorf("exit code %d\n%s\n%s", code, stdout, stderr)
	}
	time.Sleep(2 * time.Second) // on the launcher's own host another one would come at once
	for i := range 3 {
		if out, _ := s.Host(i+1).Exec(t.Context(), "find", "/root", "-path", "*/heirs/*.json"); out != "" {
			t.Errorf("host%d knows of the job:\n%s", i+1, out)
		}
	}
	if out, code := j.ask("ps"); code != 0 || strings.Contains(out, j.name) {
		t.Errorf("gorun ps (exit code %d):\n%s", code, out)
	}
	for i := range 3 { // otherwise they wait for the job, which waits for a launcher
		j.PowerOff(i)
	}
}

// TestTakeover: the launcher of a detached job is killed, then frozen, then its host loses power; each time another one
// carries the job on, without a rank that begins anew but for those of the lost host, and the former one can do
// nothing.
func TestTakeover(t *testing.T) {
	s := e2etest.NewLasting(t, 3)
	until := filepath.Join(s.Shared("takeover"), "until")
	j := detach(s, slices.Concat([]string{"--lease", "8", "-np", "3", "--min-np", "1", "-ppn", "1"}, s.Trainer(), []string{"--pause", "0.05", "--batches", "50", "--until", until})...)
	if j.name != "host2/1" {
		t.Fatalf("the job is called %s", j.name)
	}
	j.awaitLogs(`is rank 2 of 3 from batch 0`)
	j.awaitLogs(`batch 20$`)

	// Killed: its own host begins another at once.
	must.Do(t, syscall.Kill(j.launcherOn(2), syscall.SIGKILL))
	j.awaitLogs(`job host2/1 goes on by the launcher on host2`)
	j.awaitLogs(`batch \d+$`)
	if out, _ := j.ask("ps"); strings.Count(out, "host2/1") != 1 || !strings.Contains(out, "running, on host2") {
		t.Errorf("gorun ps:\n%s", out)
	}

	// Frozen, with the daemon beside it: the others vote when its lease is over. When it is back it stands down, and
	// disturbs no one.
	frozen := j.launcherOn(2)
	both := func(sig syscall.Signal) {
		must.Do(t, errors.Join(syscall.Kill(frozen, sig), s.Daemons[1].Process.Signal(sig)))
	}
	both(syscall.SIGSTOP)
	j.awaitLogs(`job host2/1 goes on by the launcher on host1`)
	both(syscall.SIGCONT)
	j.Await("end of the frozen launcher", func() bool {
		return !slices.ContainsFunc(j.Host(2).Processes(), func(p lab.Process) bool { return p.PID == frozen })
	})
	j.awaitLogs(`batch \d+$`)
	if text := j.logs(); strings.Contains(text, "epoch 2") || strings.Contains(text, "is rank") {
		t.Errorf("a launcher was replaced, and so was the world:\n%s", text)
	}

	// Without power, while someone looks on: its ranks are gone too, and what the others do since the last commit.
	attached, _, said := s.Command("attach", "--cluster", "host1", "--cluster-key-file", "/root/.ssh/key", j.name)
	seen := &e2etest.Record{}
	attached.Stdout = seen
	must.Do(t, attached.Start())
	t.Cleanup(func() { attached.Process.Kill(); attached.Wait() }) // whatever comes
	j.Await("output for who looks on", func() bool {
		lines, _ := seen.Find(`batch \d+$`)
		return len(lines) > 0
	})
	struck := time.Now()
	j.PowerOff(0)
	// Host2 was frozen until a moment ago, and may not have heard yet who was the launcher meanwhile.
	j.awaitLogs(`job host2/1 goes on by the launcher on host[23], since that on host[12] is gone`)
	j.awaitLogs(`is rank 1 of 2 from batch [1-9]`)
	took := time.Since(struck).Round(time.Millisecond)
	t.Logf("%v after the launcher's host lost power the others trained", took)
	if took > 25*time.Second { // the lease, a quarter of it for each elector before the one that follows, and some seconds to ask
		t.Errorf("the others trained only %v after the launcher's host lost power", took)
	}
	j.Boot(0)
	j.awaitLogs(`is rank 2 of 3 from batch [1-9]`)

	must.Do(t, os.WriteFile(until, nil, 0o600))

	// A user who looked on sees how it ends, and so does any other with the key.
	if err := attached.Wait(); err != nil || strings.Count(seen.String(), " ends as rank ") != 3 {
		t.Fatalf("attach: %v\n%s\n%s", err, said, seen)
	}
	text := j.logs()
	ends := regexp.MustCompile(`process \d+ ends as rank \d+ of 3 after (\d+) batches, \d+ worlds: [0-9.]+ (\w+)`).FindAllStringSubmatch(text, -1)
	if len(ends) != 3 {
		t.Fatalf("%d processes ended well:\n%s", len(ends), text)
	}
	for _, e := range ends {
		if e[1] != ends[0][1] || e[2] != ends[0][2] {
			t.Errorf("%s, but %s", e[0], ends[0][0])
		}
	}
	if out, _ := j.ask("ps"); strings.Count(out, "host2/1") != 1 || !strings.Contains(out, "ended with 0") {
		t.Errorf("gorun ps:\n%s", out)
	}
	s.ExpectIdle()
}

// TestTakeoverAgain: the host of the launcher loses power, and then that of the next one: of the three hosts that
// decided who carries the job on two are lost, but when the second goes another one has taken the place of the first.
// Two hosts are left, and go on.
func TestTakeoverAgain(t *testing.T) {
	s := e2etest.NewLasting(t, 4)
	until := filepath.Join(s.Shared("takeover"), "until")
	j := detach(s, slices.Concat([]string{"--lease", "6", "-np", "4", "--min-np", "1", "-ppn", "1"}, s.Trainer(), []string{"--pause", "0.05", "--batches", "20", "--until", until})...)
	j.awaitLogs(`is rank 3 of 4 from batch 0`)
	j.awaitLogs(`batch 5$`)
	began := time.Now()
	j.PowerOff(1)
	next := j.awaitLogs(`job host2/1 goes on by the launcher on (host[134]), since that on host2 is gone`)[1]
	j.awaitLogs(`gorun: (host[134], ){2}host[134] now elect the next launcher if this one is lost`)
	replaced := time.Since(began).Round(time.Millisecond)
	j.awaitLogs(`is rank 2 of 3 from batch [1-9]`)
	j.PowerOff(int(next[len("host")] - '1'))
	j.awaitLogs(`job host2/1 goes on by the launcher on host[134], since that on ` + next + ` is gone`)
	j.awaitLogs(`is rank 1 of 2 from batch [1-9]`)
	t.Logf("%v after the first loss another host had taken its place, %v after it the last two trained", replaced, time.Since(began).Round(time.Millisecond))
	must.Do(t, os.WriteFile(until, nil, 0o600))
	j.Await("end", func() bool {
		out, _ := j.ask("ps")
		return regexp.MustCompile(`ended with 0 at [\d :-]+\d, on host`).MatchString(out)
	})
	text := j.logs()
	ends := regexp.MustCompile(`ends as rank \d+ of 2 after (\d+) batches, \d+ worlds: [0-9.]+ (\w+)`).FindAllStringSubmatch(text, -1)
	if len(ends) != 2 || ends[0][1] != ends[1][1] || ends[0][2] != ends[1][2] {
		t.Errorf("the two that are left do not end alike: %q\n%s", ends, text)
	}
}
