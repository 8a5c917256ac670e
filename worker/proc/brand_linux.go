package proc

import (
	"bufio"
	"hash/fnv"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A job brands all that it starts with a number in a resource limit that no kernel since 2.4 looks at, RLIMIT_LOCKS. Children
// inherit it whatever they do to be forgotten: a session of their own, an empty environment, no descriptors, no parent.
// Control groups tell more surely who belongs to a job, but not every user may make some.

// brand sets the limit of this process, and so of those that it starts from now on, and returns how to take it back.
func brand(job string) (undo func()) {
	var before unix.Rlimit
	limit := unix.Rlimit{Cur: brandOf(job)}
	if unix.Getrlimit(unix.RLIMIT_LOCKS, &before) != nil || before.Max < limit.Cur {
		return func() {}
	}
	limit.Max = before.Max // a job within this one brands its own
	if unix.Setrlimit(unix.RLIMIT_LOCKS, &limit) != nil {
		return func() {}
	}
	return func() { unix.Setrlimit(unix.RLIMIT_LOCKS, &before) }
}

// brandOf is a number that hardly any other job has, and not that which means no limit.
func brandOf(job string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(job))
	return h.Sum64() >> 1
}

// branded tells whether a process was started by a job.
func branded(pid int, job string) bool {
	f, err := os.Open("/proc/" + strconv.Itoa(pid) + "/limits")
	if err != nil {
		return false
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if value, ok := strings.CutPrefix(s.Text(), "Max file locks"); ok {
			words := strings.Fields(value)
			return len(words) > 0 && words[0] == strconv.FormatUint(brandOf(job), 10)
		}
	}
	return false
}
