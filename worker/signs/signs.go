// Package signs finds out, from what the kernel reveals about the processes of ranks, what keeps them: a control group
// that gives them too little CPU or memory, other processes on their CPUs, memory that comes from disk, a file system
// that does not answer or is full, children that died.
//
// Most of that shows in how counters grow, so a Look lasts from Begin to End. A Look is used by one goroutine. What
// the files of /proc and /sys say is taken apart by functions without I/O.
package signs

import (
	"encoding/hex"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// thread is what a thread has done so far. Times are in nanoseconds.
type thread struct {
	ran      int64
	ready    int64 // while it was ready to run and others had the CPU
	switches int64 // that it made by waiting
}

// parseSchedstat reads the time that a thread ran and the time that it was ready.
func parseSchedstat(text []byte) (ran, ready int64) {
	f := strings.Fields(string(text))
	if len(f) < 2 {
		return 0, 0
	}
	ran, _ = strconv.ParseInt(f[0], 10, 64)
	ready, _ = strconv.ParseInt(f[1], 10, 64)
	return ran, ready
}

// field returns the number behind a name in a file of lines "name: 123 kB" or "name 123".
func field(text []byte, name string) int64 {
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) >= 2 && strings.TrimSuffix(f[0], ":") == name {
			n, _ := strconv.ParseInt(f[1], 10, 64)
			return n
		}
	}
	return 0
}

// mount is a place of /proc/PID/mountinfo.
type mount struct{ point, kind string }

// parseMounts reads /proc/PID/mountinfo.
func parseMounts(text []byte) (all []mount) {
	for line := range strings.Lines(string(text)) {
		place, system, _ := strings.Cut(line, " - ")
		if f, kind := strings.Fields(place), strings.Fields(system); len(f) > 5 && len(kind) > 0 {
			all = append(all, mount{unescape.Replace(f[4]), kind[0]})
		}
	}
	return all
}

// unescape reads the octal escapes of mountinfo.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// mountOf returns the mount that a path is on: the last one of those with the longest point.
func mountOf(all []mount, path string) (at mount) {
	for _, m := range all {
		within := m.point == "/" || path == m.point || strings.HasPrefix(path, m.point+"/")
		if within && len(m.point) >= len(at.point) {
			at = m
		}
	}
	return at
}

// parsePeer finds the other end of a TCP connection in /proc/PID/net/tcp, by the inode of its socket.
func parsePeer(text []byte, inode string) string {
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) < 10 || f[9] != inode {
			continue
		}
		address, port, _ := strings.Cut(f[2], ":")
		b, err := hex.DecodeString(address)
		for i := 0; i+4 <= len(b); i += 4 { // words as this machine has them
			slices.Reverse(b[i : i+4])
		}
		ip, ok := netip.AddrFromSlice(b)
		n, bad := strconv.ParseUint(port, 16, 16)
		if err == nil && ok && bad == nil {
			return netip.AddrPortFrom(ip.Unmap(), uint16(n)).String()
		}
	}
	return ""
}

// parseHolder finds in /proc/locks the process whose lock another one waits for, 0 if there is none.
func parseHolder(text []byte, waiter int) (holder int) {
	held := map[string]int{} // by the number of the lock
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		switch {
		case len(f) > 5 && f[1] == "->" && f[5] == strconv.Itoa(waiter):
			return held[f[0]]
		case len(f) > 4 && f[1] != "->":
			held[f[0]], _ = strconv.Atoi(f[4])
		}
	}
	return 0
}
