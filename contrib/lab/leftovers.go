//go:build linux

package lab

import (
	"bufio"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Process is one process on a host.
type Process struct {
	PID    int // the machine's number, for kill
	Parent int // likewise; 0 if it is outside of the host
	Inner  int // the host's own number; 1 is its sshd
	State  byte
	Args   string
}

func (p Process) String() string {
	return fmt.Sprintf("process %d (%c): %s", p.Inner, p.State, p.Args)
}

// Processes are all processes on the host, its sshd first.
func (h *LabHost) Processes() []Process {
	pid, err := h.runningPID()
	if err != nil {
		return nil
	}
	return processesOf(pid)
}

// processesOf lists the processes in the pid namespace that a process is the first of.
func processesOf(first int) []Process {
	namespace, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", first))
	if err != nil {
		return nil
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var list []Process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if other, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid)); err != nil || other != namespace {
			continue
		}
		if p, ok := readProcess(pid); ok {
			list = append(list, p)
		}
	}
	return list
}

func readProcess(pid int) (Process, bool) {
	p := Process{PID: pid}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return p, false // it has ended meanwhile
	}
	for line := range strings.Lines(string(status)) {
		key, value, _ := strings.Cut(line, ":")
		fields := strings.Fields(value)
		if len(fields) == 0 {
			continue
		}
		switch key {
		case "Name":
			p.Args = "[" + fields[0] + "]"
		case "State":
			p.State = fields[0][0]
		case "PPid":
			p.Parent, _ = strconv.Atoi(fields[0])
		case "NSpid":
			p.Inner, _ = strconv.Atoi(fields[len(fields)-1])
		}
	}
	if args, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err == nil && len(args) > 0 {
		p.Args = strings.Join(strings.Fields(strings.ReplaceAll(string(args), "\x00", " ")), " ")
	}
	return p, true
}

const sshPort = 22

// socket is a line of /proc/net/tcp or udp.
type socket struct {
	address string
	port    int
}

func listeningTCP(pid int) []socket { return boundSockets(pid, "tcp", "0A") }

// boundSockets reads the sockets of one protocol and state in the network namespace of a process.
func boundSockets(pid int, protocol, state string) []socket {
	var list []socket
	for _, name := range []string{protocol, protocol + "6"} {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, name))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(text)) {
			fields := strings.Fields(line)
			if len(fields) < 4 || fields[3] != state {
				continue
			}
			address, hex, _ := strings.Cut(fields[1], ":")
			if port, err := strconv.ParseUint(hex, 16, 16); err == nil {
				list = append(list, socket{name + " " + address, int(port)})
			}
		}
	}
	return list
}

// Leftovers lists what the host has now but did not have after its boot: processes, bound sockets, and files in /tmp,
// /var/tmp, /dev/shm, /run and the home, except for gorun's cached binary and its records of jobs. After a job the list
// must become empty.
func (h *LabHost) Leftovers() []string {
	pid, err := h.runningPID()
	if err != nil {
		return nil
	}
	var list []string
	for _, p := range processesOf(pid) {
		if p.Inner != 1 {
			list = append(list, p.String())
		}
	}
	for _, s := range listeningTCP(pid) {
		if s.port != sshPort {
			list = append(list, fmt.Sprintf("listener %s port %d", s.address, s.port))
		}
	}
	for _, s := range boundSockets(pid, "udp", "07") {
		list = append(list, fmt.Sprintf("socket %s port %d", s.address, s.port))
	}
	list = append(list, unixSockets(pid)...)
	root := fmt.Sprintf("/proc/%d/root", pid)
	for _, dir := range []string{"/tmp", "/var/tmp", "/dev/shm", "/run", "/home", home} {
		list = append(list, h.files(root, dir)...)
	}
	return list
}

// unixSockets lists the unix sockets with a name, abstract or not, in the network namespace of a process.
func unixSockets(pid int) []string {
	f, err := os.Open(fmt.Sprintf("/proc/%d/net/unix", pid))
	if err != nil {
		return nil
	}
	defer f.Close()
	var list []string
	for lines := bufio.NewScanner(f); lines.Scan(); {
		// Num RefCount Protocol Flags Type St Inode Path
		if fields := strings.Fields(lines.Text()); len(fields) > 7 && fields[0] != "Num" {
			list = append(list, "unix socket "+fields[7])
		}
	}
	return list
}

// files lists the files below a directory that the host did not have after its boot.
func (h *LabHost) files(root, dir string) []string {
	born := map[string]bool{"/run/lab": true, "/run/sshd": true, home + "/.ssh": true, home + "/.cache/gorun": true,
		home + "/.local/state/gorun/jobs": true}
	for _, dir := range h.lab.share {
		born[dir] = true
	}
	var list []string
	filepath.WalkDir(root+dir, func(path string, e fs.DirEntry, err error) error {
		name := strings.TrimPrefix(path, root)
		switch {
		case err != nil:
			return nil // removed while we look
		case born[name]:
			if e.IsDir() {
				return fs.SkipDir
			}
		case !e.IsDir():
			list = append(list, "file "+name)
		}
		return nil
	})
	return list
}
