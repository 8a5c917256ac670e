//go:build linux

package lab

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
)

// State describes a lab for use by another process.
type State struct {
	Owner Identity    `json:"owner"` // the process that made it and must Close it
	Rack  Identity    `json:"rack"`
	Share []string    `json:"share"`
	Hosts []HostState `json:"hosts"`
}

// HostState is one host of a State.
type HostState struct {
	Name    string     `json:"name"`
	Port    string     `json:"port"`
	Address netip.Addr `json:"address"`
	First   Identity   `json:"first"`
}

// Identity names a process for good, although its number may be used again.
type Identity struct {
	PID     int    `json:"pid"`
	Started string `json:"started"` // in the kernel's words
}

// Identify looks a process up by its number.
func Identify(pid int) Identity { return Identity{pid, startTime(pid)} }

// Alive reports whether that very process still runs.
func (i Identity) Alive() bool { return i.Started != "" && startTime(i.PID) == i.Started }

// startTime is field 22 of /proc/PID/stat, or nothing for a process that has ended.
func startTime(pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	// The name, in parentheses, may hold anything.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 20 || fields[0] == "Z" {
		return ""
	}
	return fields[19]
}

// State describes the lab for Attach.
func (l *Lab) State() State {
	s := State{Owner: Identify(os.Getpid()), Rack: Identify(l.rackPID), Share: l.share}
	for _, h := range l.hosts {
		pid, _ := h.runningPID()
		s.Hosts = append(s.Hosts, HostState{h.name, h.port, h.address, Identify(pid)})
	}
	return s
}

// Attach returns a lab that another process owns. Close and Boot are left to that process.
func Attach(s State) (*Lab, error) {
	if !s.Rack.Alive() || len(s.Hosts) == 0 {
		return nil, errors.New("attach: the lab is gone")
	}
	l := &Lab{rackPID: s.Rack.PID, dir: labDir(s.Rack.PID), share: s.Share}
	for _, hs := range s.Hosts {
		h := &LabHost{lab: l, name: hs.Name, port: hs.Port, address: hs.Address}
		if hs.First.Alive() {
			h.pid = hs.First.PID
		}
		l.hosts = append(l.hosts, h)
	}
	return l, nil
}
