package proc

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// ReadTable returns all processes, except some that end meanwhile. It costs three system calls per process, about 10
// µs, which is why the loop bounds how often it is called.
func ReadTable() ([]Process, error) {
	pids, err := readPIDs()
	if err != nil {
		return nil, err
	}
	table := make([]Process, 0, len(pids))
	buf := make([]byte, 1024)
	for _, pid := range pids {
		if p, err := readStat("/proc/"+strconv.Itoa(pid)+"/stat", buf); err == nil {
			table = append(table, p)
		}
	}
	return table, nil
}

// readPIDs returns the numbers of all processes, which costs less.
func readPIDs() (pids []int, err error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, fmt.Errorf("read process table: %w", err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("read process table: %w", err)
	}
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// childless reports that this process has no child, not even a zombie. Since it adopts the orphans below it, nothing
// below it is left then. That costs one system call and is exact at one instant, unlike a reading of the table.
func childless() bool {
	return unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT|unix.WALL, nil) == unix.ECHILD
}

func readStat(file string, buf []byte) (Process, error) {
	fd, err := unix.Open(file, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return Process{}, err
	}
	defer unix.Close(fd)
	n, err := unix.Read(fd, buf)
	if err != nil {
		return Process{}, err
	}
	return parseStat(buf[:n])
}

// Read returns the line of one process; false if it has ended.
func Read(pid int) (Process, bool) {
	p, err := readStat("/proc/"+strconv.Itoa(pid)+"/stat", make([]byte, 1024))
	return p, err == nil
}

// readSelf returns this process's line, and an error if /proc shows other processes than ours: with the /proc of
// another pid namespace we would kill the wrong ones.
func readSelf() (Process, error) {
	self, err := readStat("/proc/self/stat", make([]byte, 1024))
	if err != nil {
		return self, fmt.Errorf("read process table: %w", err)
	}
	if self.PID != os.Getpid() {
		return self, fmt.Errorf("read process table: /proc belongs to another pid namespace (this is %d, it says %d)",
			os.Getpid(), self.PID)
	}
	return self, nil
}

// readMark returns the job and rank in the environment a process was started with.
func readMark(pid int) (job string, process int, ok bool) {
	env := Environment(pid)
	job, ok = variable(env, envJob)
	value, _ := variable(env, envProcess)
	process, err := strconv.Atoi(value)
	return job, process, ok && err == nil
}

// adoptOrphans makes this process the parent of every descendant whose own parent ends.
func adoptOrphans() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become child subreaper: %w", err)
	}
	return nil
}

// kill signals processes by their groups, which reaches all members in one step, so that a process that forks cannot
// escape. Only members of our own group are signalled one by one.
func kill(ps []Process, self Process, sigs ...unix.Signal) {
	done := map[int]bool{}
	for _, p := range ps {
		if p.dead() {
			continue
		}
		target := -p.Group
		if p.Group == self.Group || p.Group <= 1 {
			target = p.PID
		}
		if done[target] {
			continue
		}
		done[target] = true
		for _, sig := range sigs {
			unix.Kill(target, sig) // ESRCH means success
		}
	}
}
