package proc

import (
	"errors"
	"hash/crc32"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A daemon brands everything it starts with a number in a resource limit that no kernel since 2.4 looks at,
// RLIMIT_LOCKS. Children inherit it whatever they do to detach themselves: a session of their own, an empty
// environment, no descriptors, no parent. And only children do: schedulers and logins do not pass it on, as they may an
// environment. The number names the daemon, which shows whether the daemon of a branded process is still above it.
// Every user can do this, while few may create control groups.

// brand sets the limit of this process, and so of those it starts from now on, and returns how to undo that.
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

// brandOf returns the number of a daemon: its pid in its own namespace, and a checksum that distinguishes a brand from
// limits set for other reasons.
func brandOf(pid int) uint64 {
	return uint64(pid)<<32 | uint64(crc32.ChecksumIEEE(strconv.AppendInt([]byte("gorun "), int64(pid), 10)))
}

// brandOn returns the brand of a process, 0 if it has none or is not this user's.
func brandOn(pid int) uint64 {
	var limit unix.Rlimit
	err := unix.Prlimit(pid, unix.RLIMIT_LOCKS, nil, &limit)
	if errors.Is(err, unix.EPERM) && unix.Kill(pid, 0) == nil { // a privileged program, such as ssh-agent
		limit.Cur = readLocks(pid)
	} else if err != nil {
		return 0
	}
	if daemon := int(limit.Cur >> 32); limit.Cur != brandOf(daemon) {
		return 0
	}
	return limit.Cur
}

// readLocks reads the limit from /proc, which every user may.
func readLocks(pid int) uint64 {
	_, value, _ := strings.Cut(ReadOf(pid, "limits"), "\nMax file locks")
	soft, _, _ := strings.Cut(strings.TrimSpace(value), " ")
	limit, _ := strconv.ParseUint(soft, 10, 64) // 0 for "unlimited"
	return limit
}
