package proc

import (
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Sweep ends what a job left on this host whose guardian and daemon were killed in the same instant: processes that
// made themselves a session, which nobody is there to adopt. Control groups without an owner go, and processes that
// carry the job's mark or brand without a daemon above them: the host may long be used by the job again.
func Sweep(job string) error {
	self, err := readSelf()
	if err != nil {
		return err
	}
	deadline := time.Now().Add(patience)
	errs := []error{sweepCgroups(0, deadline)}
	pause := firstScan
	for empty := 0; empty < 2; {
		left, err := abandoned(job)
		if err != nil {
			errs = append(errs, err)
			break
		}
		if len(left) == 0 {
			empty++
			continue
		}
		empty = 0
		if time.Now().After(deadline) {
			stuck := &StuckError{}
			for _, p := range left {
				stuck.PIDs = append(stuck.PIDs, p.pid)
			}
			errs = append(errs, stuck)
			break
		}
		kill(left, self, unix.SIGKILL)
		time.Sleep(pause)
		pause = min(2*pause, slowScan)
	}
	return errors.Join(errs...)
}

// abandoned lists the living processes with a job's mark or brand that are neither daemons nor below one, and not above
// this process: who sweeps may be a rank.
func abandoned(job string) ([]process, error) {
	table, err := readTable()
	if err != nil {
		return nil, err
	}
	parents := map[int]int{}
	for _, p := range table {
		parents[p.pid] = p.parent
	}
	ours := map[int]bool{}
	for pid := os.Getpid(); pid != 0 && !ours[pid]; pid = parents[pid] {
		ours[pid] = true
	}
	return slices.DeleteFunc(living(table), func(p process) bool {
		if marked, _, ok := readMark(p.pid); (!ok || marked != job) && !branded(p.pid, job) || ours[p.pid] || isDaemon(p.pid) {
			return true
		}
		for range len(table) { // numbers used twice meanwhile must not lead round in a circle
			if p.pid = parents[p.pid]; p.pid == 0 {
				return false
			}
			if isDaemon(p.pid) {
				return true
			}
		}
		return true
	}), nil
}

// isDaemon tells by the arguments with which guardians start daemons.
func isDaemon(pid int) bool {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	return err == nil && strings.HasPrefix(string(text), DaemonName+"\x00worker\x00--daemon\x00")
}
