package proc

import (
	"bufio"
	"errors"
	"hash/crc32"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A daemon brands all that it starts with a number in a resource limit that no kernel since 2.4 looks at, RLIMIT_LOCKS. Children
// inherit it whatever they do to be forgotten: a session of their own, an empty environment, no descriptors, no parent. Only
// children do: no scheduler and no login carries it elsewhere, as they may an environment. The number names the daemon, so
// that it shows whether the daemon of a branded process is still above it. Control groups are surer, but not every user may
// make some.

// brand sets the limit of this process, and so of those that it starts from now on, and returns how to take it back.
func brand() (undo func()) {
	var before unix.Rlimit
	limit := unix.Rlimit{Cur: brandOf(os.Getpid())}
	if unix.Getrlimit(unix.RLIMIT_LOCKS, &before) != nil || before.Max < limit.Cur {
		return func() {}
	}
	limit.Max = before.Max // a job within this one brands its own
	if unix.Setrlimit(unix.RLIMIT_LOCKS, &limit) != nil {
		return func() {}
	}
	return func() { unix.Setrlimit(unix.RLIMIT_LOCKS, &before) }
}

// brandOf returns the number of a daemon: its pid in its own namespace, and a checksum that tells a brand from limits that
// somebody else has set.
func brandOf(pid int) uint64 {
	return uint64(pid)<<32 | uint64(crc32.ChecksumIEEE(strconv.AppendInt([]byte("gorun "), int64(pid), 10)))
}

// brandOn returns the brand of a process, 0 if it has none or is not this user's.
func brandOn(pid int) uint64 {
	var limit unix.Rlimit
	err := unix.Prlimit(pid, unix.RLIMIT_LOCKS, nil, &limit)
	if errors.Is(err, unix.EPERM) && unix.Kill(pid, 0) == nil { // a program with rights of its own, as ssh-agent
		limit.Cur = readLocks(pid)
	} else if err != nil {
		return 0
	}
	if daemon := int(limit.Cur >> 32); limit.Cur != brandOf(daemon) {
		return 0
	}
	return limit.Cur
}

// readLocks reads the limit where anybody may.
func readLocks(pid int) uint64 {
	f, err := os.Open("/proc/" + strconv.Itoa(pid) + "/limits")
	if err != nil {
		return 0
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if value, ok := strings.CutPrefix(s.Text(), "Max file locks"); ok {
			soft, _, _ := strings.Cut(strings.TrimSpace(value), " ")
			limit, _ := strconv.ParseUint(soft, 10, 64) // 0 for "unlimited"
			return limit
		}
	}
	return 0
}
