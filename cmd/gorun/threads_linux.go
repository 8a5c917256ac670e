package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"gorun/launcher/failure"
)

// leastThreads is how many processes and threads a launcher needs at the least. With fewer the Go runtime crashes.
const leastThreads = 10

// checkThreads returns an error if a control group of this process leaves room for fewer than leastThreads processes
// and threads.
func checkThreads() error {
	groups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil // no limit is known
	}
	return checkGroups(string(groups), "/sys/fs/cgroup")
}

// checkGroups is checkThreads for control groups as /proc/self/cgroup names them, below the directory at which they are
// mounted.
func checkGroups(groups, mount string) error {
	for line := range strings.Lines(groups) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) < 3 || parts[1] != "" && parts[1] != "pids" {
			continue
		}
		root := filepath.Join(mount, parts[1])
		for dir := filepath.Join(root, parts[2]); strings.HasPrefix(dir, root); dir = filepath.Dir(dir) {
			most, used, ok := threadsIn(dir)
			if ok && most-used < leastThreads {
				return &usageError{fmt.Errorf("this control group allows %d processes and threads, and has %d: %s", most, used, dir), failure.ThreadHint}
			}
		}
	}
	return nil
}

// threadsIn returns the limit of a control group and how much of it is in use.
func threadsIn(dir string) (most, used int, ok bool) {
	number := func(name string) (int, error) {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return 0, err
		}
		return strconv.Atoi(strings.TrimSpace(string(text))) // "max" is no number
	}
	most, err := number("pids.max")
	used, err2 := number("pids.current")
	return most, used, errors.Join(err, err2) == nil
}
