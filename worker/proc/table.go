package proc

import (
	"bytes"
	"errors"
	"slices"
	"strconv"
	"time"
)

// Process is one line of the process table.
type Process struct {
	PID, Parent, Group, Session int
	State                       byte
	Threads                     int
	Born                        int64 // in ticks since boot: distinguishes processes that had the same number
	Command                     string
	Faults                      int64 // pages that came from disk
	Ticks, ChildTicks           int64 // CPU time, of itself and of children that have ended
	Pages                       int64 // in memory
	Exit                        int   // status, of a zombie
}

// Tick is the unit of times in /proc, the same on every Linux that Go runs on.
const Tick = 10 * time.Millisecond

// dead reports a zombie. A first thread that has ended while others run looks like one and is not.
func (p Process) dead() bool {
	return p.State == 'X' || p.State == 'Z' && p.Threads <= 1
}

var errStat = errors.New("parse process status: malformed")

// parseStat reads /proc/PID/stat. The command's name is in parentheses and may hold anything, further
// parentheses too, so that counting fields starts behind the last one.
func parseStat(b []byte) (p Process, err error) {
	head, rest, ok := bytes.Cut(b, []byte(" ("))
	end := bytes.LastIndexByte(rest, ')')
	if !ok || end < 0 {
		return Process{}, errStat
	}
	if p.PID, err = strconv.Atoi(string(head)); err != nil {
		return Process{}, errStat
	}
	f := bytes.Fields(rest[end+1:])
	if len(f) < 22 || len(f[0]) != 1 {
		return Process{}, errStat
	}
	number := func(field int) (n int64) { // as proc(5) counts: the state is field 3
		if field-3 < len(f) && err == nil {
			n, err = strconv.ParseInt(string(f[field-3]), 10, 64)
		}
		return n
	}
	p.Command, p.State = string(rest[:end]), f[0][0]
	p.Parent, p.Group, p.Session, p.Threads = int(number(4)), int(number(5)), int(number(6)), int(number(20))
	p.Faults, p.Ticks, p.ChildTicks = number(12), number(14)+number(15), number(16)+number(17)
	p.Born, p.Pages, p.Exit = number(22), number(24), int(number(52))
	if err != nil {
		return Process{}, errStat
	}
	return p, nil
}

// noRank owns the processes of the job whose rank is unknown.
const noRank = -1

// lineage groups the processes below self by rank. Ranks are known by the pid that leads their session. Since self
// adopts orphans, everything a rank ever started is below self: either still below its rank, or adopted. An adopted
// process is identified by its session or group or, if it made a session of its own, by its environment, which origin
// reads.
//
// Children of self in self's own session belong to the daemon, not to ranks: a rank gets a new session before it runs
// its first instruction, and no process can join an older one.
func lineage(table []Process, self Process, leaders map[int]bool,
	origin func(pid int) (leader int, ok bool)) map[int][]Process {
	children := byParent(table)
	owned := map[int][]Process{}
	claim := func(owner int, p Process) {
		owned[owner] = append(append(owned[owner], p), below(children, p.PID)...)
	}
	for _, p := range children[self.PID] {
		switch {
		case leaders[p.PID]:
			claim(p.PID, p)
		case p.Session == self.Session:
		case leaders[p.Session]:
			claim(p.Session, p)
		case leaders[p.Group]:
			claim(p.Group, p)
		default:
			owner, ok := origin(p.PID)
			if !ok {
				owner = noRank
			}
			claim(owner, p)
		}
	}
	return owned
}

func byParent(table []Process) map[int][]Process {
	children := map[int][]Process{}
	for _, p := range table {
		children[p.Parent] = append(children[p.Parent], p)
	}
	return children
}

// below returns all descendants of pid and removes them from children: the table is not read atomically, and a reused
// number must not lead round in a circle.
func below(children map[int][]Process, pid int) []Process {
	found := children[pid]
	delete(children, pid)
	for _, p := range found[:len(found):len(found)] {
		found = append(found, below(children, p.PID)...)
	}
	return found
}

// living leaves out zombies.
func living(ps []Process) []Process {
	return slices.DeleteFunc(slices.Clone(ps), Process.dead)
}
