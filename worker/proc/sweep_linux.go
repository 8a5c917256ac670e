package proc

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Sweep ends what dead jobs left on this host after their supervisor and daemon were killed at the same instant:
// processes with a brand, or with the mark of the given job, without a daemon above them. The job may long be using the
// host again.
func Sweep(job string) error { return sweepProcesses(job, time.Now().Add(killTimeout)) }

// sweepDead is the sweep of a supervisor. It does not know the names of dead jobs, and does not wait long: what is
// stuck is left to the next supervisor.
func sweepDead() {
	pids, err := readPIDs()
	if err != nil || !slices.ContainsFunc(pids, func(pid int) bool { return brandOn(pid) != 0 }) {
		return // as on most hosts: reading the whole table takes ten times as long
	}
	sweepProcesses("", time.Now().Add(time.Second))
}

func sweepProcesses(job string, deadline time.Time) error {
	self, err := readSelf()
	if err != nil {
		return err
	}
	pause, killed := firstScan, false
	for empty := 0; empty < 2; {
		table, err := ReadTable()
		if err != nil {
			return err
		}
		left := abandoned(table, job)
		if len(left) == 0 {
			empty++
			continue
		}
		empty = 0
		if killed && time.Now().After(deadline) { // once, however long it took to find them
			return stuck(left)
		}
		killAsRead(left, table, self)
		killed = true
		time.Sleep(pause)
		pause = min(2*pause, slowScan)
	}
	return nil
}

// abandoned lists the living processes with a brand, or with a job's mark, that are neither daemons nor below one,
// and not above this process, which may be a rank's.
func abandoned(table []Process, job string) (left []Process) {
	parents := map[int]int{}
	for _, p := range table {
		parents[p.PID] = p.Parent
	}
	ours := ancestry(os.Getpid(), parents)
	daemons := map[int]bool{}
	supervised := func(pid int) bool {
		is, known := daemons[pid]
		if !known {
			is = isDaemon(pid)
			daemons[pid] = is
		}
		return is
	}
	for _, p := range living(table) {
		branded := brandOn(p.PID) != 0
		if !branded && (job == "" || !marked(p.PID, job)) || slices.Contains(ours, p.PID) {
			continue
		}
		line := ancestry(p.PID, parents)
		if slices.ContainsFunc(line, supervised) || branded && !orphaned(line, parents) {
			continue
		}
		left = append(left, p)
	}
	return left
}

// ancestry returns a process and its visible ancestors.
func ancestry(pid int, parents map[int]int) (line []int) {
	for pid != 0 && !slices.Contains(line, pid) { // reused numbers must not lead round in a circle
		line = append(line, pid)
		pid = parents[pid]
	}
	return line
}

// orphaned reports whether the daemon of a branded process of this user is dead, judging by the process's ancestors,
// and not just invisible: in a container that a job has made, the ancestors of its first process cannot be seen; in one
// on this host, other supervisors look after their own.
func orphaned(line []int, parents map[int]int) bool {
	unbranded := slices.IndexFunc(line, func(pid int) bool { return brandOn(pid) == 0 })
	if unbranded < 1 || brandOn(line[len(line)-1]) != 0 {
		return false
	}
	for _, pid := range line {
		if _, seen := parents[pid]; !seen && pid != 1 { // process 1 belongs to root, and may be hidden
			return false // it ended while the table was read, and its children have another parent now
		}
	}
	// Its numbers from our pid namespace inwards: another namespace is another host, unless a job has made it.
	numbers := strings.Fields(Field(ReadOf(line[unbranded-1], "status"), "NSpid"))
	if len(numbers) > 1 && (len(numbers) > 2 || numbers[1] != "1") {
		return false
	}
	user := strings.Fields(Field(ReadOf(line[0], "status"), "Uid"))
	return len(user) > 0 && user[0] == strconv.Itoa(os.Getuid())
}

// isDaemon recognizes a daemon by the arguments that supervisors give it, and by a brand that names the process itself.
func isDaemon(pid int) bool {
	if strings.HasPrefix(ReadOf(pid, "cmdline"), DaemonName+"\x00worker\x00--daemon\x00") {
		return true
	}
	number := brandOn(pid)
	if number == 0 {
		return false
	}
	numbers := strings.Fields(Field(ReadOf(pid, "status"), "NSpid"))
	return len(numbers) > 0 && numbers[len(numbers)-1] == strconv.FormatUint(number>>32, 10)
}

func marked(pid int, job string) bool {
	of, _, ok := readMark(pid)
	return ok && of == job
}

// killAsRead kills processes if they are still the ones in the table, not others that reuse their numbers. If all
// processes of a group are to be killed it kills the group, so that a fork cannot escape.
func killAsRead(left, table []Process, self Process) {
	mixed := map[int]bool{self.Group: true}
	for _, p := range table {
		if !slices.Contains(left, p) {
			mixed[p.Group] = true
		}
	}
	for _, p := range left {
		handle, err := os.FindProcess(p.PID) // it identifies the process exactly, where the kernel can (5.4)
		if err != nil {
			continue
		}
		now, alive := Read(p.PID)
		switch {
		case !alive || now.Born != p.Born || now.Group != p.Group:
		case mixed[p.Group] || p.Group <= 1:
			handle.Kill()
		default:
			unix.Kill(-p.Group, unix.SIGKILL)
		}
		handle.Release()
	}
}
