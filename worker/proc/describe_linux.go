package proc

import (
	"bytes"
	"fmt"
	"os"
	"strings"
)

// Describe returns in a few words what a process is doing, as far as the kernel reveals it.
func Describe(pid int) string {
	read := func(name string) string {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, name)) // "" if it has ended or access is denied
		return strings.TrimSpace(string(bytes.ReplaceAll(b, []byte{0}, []byte{' '})))
	}
	_, stat, ok := strings.Cut(read("stat"), ") ")
	if !ok || pid <= 0 {
		return "runs"
	}
	state := map[byte]string{
		'R': "is computing",
		'S': "sleeps",
		'D': "is stuck in the kernel (disk or network file system?)",
		'T': "is stopped",
		't': "is stopped by a debugger",
		'Z': "has ended",
	}[stat[0]]
	if state == "" {
		state = "runs"
	}
	if where := read("wchan"); where != "" && where != "0" && stat[0] != 'R' {
		state += " in " + where
	}
	return fmt.Sprintf("%s (pid %d)", state, pid)
}
