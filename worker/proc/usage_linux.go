package proc

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"strconv"
	"time"
)

// userHz is the unit of times in /proc, the same on every Linux that Go runs on.
const userHz = 100

// Used returns what the given processes use, each with its descendants.
func Used(pids []int) (map[int]Usage, error) {
	table, err := readTable()
	if err != nil {
		return nil, err
	}
	out, children := map[int]Usage{}, byParent(table)
	for _, pid := range pids {
		var u Usage
		for _, p := range append([]process{{pid: pid}}, below(maps.Clone(children), pid)...) {
			b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.pid))
			if err != nil {
				continue // it has ended
			}
			if cpu, rss, ok := parseUsage(b); ok {
				u.CPU += cpu
				u.RSS += rss
				u.Processes++
			}
		}
		out[pid] = u
	}
	return out, nil
}

// parseUsage reads the times and the memory in /proc/PID/stat; see parseStat.
func parseUsage(b []byte) (cpu time.Duration, rss int64, ok bool) {
	f := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(f) < 22 {
		return 0, 0, false
	}
	var ticks int64
	for _, field := range f[11:15] { // utime stime cutime cstime
		n, err := strconv.ParseInt(string(field), 10, 64)
		if err != nil {
			return 0, 0, false
		}
		ticks += n
	}
	pages, err := strconv.ParseInt(string(f[21]), 10, 64)
	return time.Duration(ticks) * (time.Second / userHz), pages * int64(os.Getpagesize()), err == nil
}
