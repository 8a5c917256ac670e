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
	born                        uint64 // in ticks since boot: distinguishes processes that had the same number
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

// noRank owns the processes of the job whose rank is unknown.
const noRank = -1

// lineage groups the processes below self by rank. Ranks are known by the pid that leads their session. Since self
// adopts orphans, everything a rank ever started is below self: either still below its rank, or adopted. An adopted
// process is identified by its session or group or, if it made a session of its own, by its environment, which origin
// reads.
//
// Children of self in self's own session belong to the daemon, not to ranks: a rank gets a new session before it runs
// its first instruction, and no process can join an older one.
func lineage(table []process, self process, leaders map[int]bool,
	origin func(pid int) (leader int, ok bool)) map[int][]process {
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
				owner = noRank
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

// below returns all descendants of pid and removes them from children: the table is not read atomically, and a reused
// number must not lead round in a circle.
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
