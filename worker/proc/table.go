package proc

import (
	"bytes"
	"errors"
	"slices"
	"strconv"
)

// process is one line of the process table.
type process struct {
	pid, parent, group, session int
	state                       byte
	threads                     int
	born                        uint64 // in ticks since the machine started: tells apart processes that had the same number
}

// dead reports a zombie. A first thread that has ended while others run looks like one and is not.
func (p process) dead() bool {
	return p.state == 'X' || p.state == 'Z' && p.threads <= 1
}

var errStat = errors.New("parse process status: malformed")

// parseStat reads /proc/PID/stat. The command's name is in parentheses and may hold anything, further
// parentheses too, so that counting fields starts behind the last one.
func parseStat(b []byte) (process, error) {
	head, _, ok := bytes.Cut(b, []byte(" ("))
	if !ok {
		return process{}, errStat
	}
	pid, err := strconv.Atoi(string(head))
	if err != nil {
		return process{}, errStat
	}
	f := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	// state ppid pgrp session tty tpgid flags minflt cminflt majflt cmajflt utime stime cutime cstime
	// priority nice num_threads itrealvalue starttime …
	if len(f) < 20 || len(f[0]) != 1 {
		return process{}, errStat
	}
	p := process{pid: pid, state: f[0][0]}
	for _, field := range []struct {
		to *int
		at int
	}{{&p.parent, 1}, {&p.group, 2}, {&p.session, 3}, {&p.threads, 17}} {
		if *field.to, err = strconv.Atoi(string(f[field.at])); err != nil {
			return process{}, errStat
		}
	}
	if p.born, err = strconv.ParseUint(string(f[19]), 10, 64); err != nil {
		return process{}, errStat
	}
	return p, nil
}

// nobody owns the processes of the job whose rank cannot be told.
const nobody = -1

// lineage sorts the processes below self by the rank they belong to. Ranks are known by the pid that
// leads their session. Since self adopts orphans, everything a rank ever started is below self: either
// still below its rank, or adopted. An adopted process is recognised by the rank's session or group it is
// in or, if it made itself a session, by what origin reads from its environment.
//
// Children of self in self's own session are the daemon's business, not ranks: a rank is given a new
// session before it runs its first instruction, and no process can join an older one.
func lineage(table []process, self process, leaders map[int]bool, origin func(pid int) (leader int, ok bool)) map[int][]process {
	children := byParent(table)
	owned := map[int][]process{}
	claim := func(owner int, p process) {
		owned[owner] = append(append(owned[owner], p), below(children, p.pid)...)
	}
	for _, p := range children[self.pid] {
		switch {
		case leaders[p.pid]:
			claim(p.pid, p)
		case p.session == self.session:
		case leaders[p.session]:
			claim(p.session, p)
		case leaders[p.group]:
			claim(p.group, p)
		default:
			owner, ok := origin(p.pid)
			if !ok {
				owner = nobody
			}
			claim(owner, p)
		}
	}
	return owned
}

func byParent(table []process) map[int][]process {
	children := map[int][]process{}
	for _, p := range table {
		children[p.parent] = append(children[p.parent], p)
	}
	return children
}

// below returns all descendants of pid. It takes them out of children: the table is not read in one
// instant, and a number used twice meanwhile must not lead round in a circle.
func below(children map[int][]process, pid int) []process {
	found := children[pid]
	delete(children, pid)
	for _, p := range found[:len(found):len(found)] {
		found = append(found, below(children, p.pid)...)
	}
	return found
}

// living leaves out zombies.
func living(ps []process) []process {
	return slices.DeleteFunc(slices.Clone(ps), process.dead)
}
