package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"gorun/topology"
	"gorun/topology/facts"
)

// rereadEvery is how often one looks whether the topology file is another one. It is read when it looks the same twice: an
// editor may be writing it.
const rereadEvery = time.Second

// watchFacts reads the topology file again when it changes while a job runs, and returns what is sent to the hosts then. A
// file that is none is told once and changes nothing. The second result ends it.
func watchFacts(ctx context.Context, p ringPlan, names []string, note func(format string, args ...any)) (<-chan []byte, func()) {
	first, err := os.Stat(p.file)
	if p.file == "" || err != nil || !first.Mode().IsRegular() { // a pipe says what it has to say once
		return nil, func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	texts := make(chan []byte)
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(rereadEvery)
		defer tick.Stop()
		r := rereader{plan: p, hosts: named(names), sent: p.text}
		for {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			text, told := r.look()
			if told != "" {
				note("gorun: %s", told)
			}
			if text == nil {
				continue
			}
			select {
			case texts <- text:
			case <-ctx.Done():
				return
			}
		}
	})
	return texts, func() { cancel(); wg.Wait() }
}

// rereader knows what the topology file was like.
type rereader struct {
	plan  ringPlan
	hosts []topology.Host
	sent  []byte // what hosts have
	seen  string // size and time of the file when it was looked at last
	known string // and when it was read
}

// look returns what hosts are to be sent, nil if nothing, and what the user is to be told, "" for nothing.
func (r *rereader) look() (text []byte, told string) {
	state := "gone"
	if info, err := os.Stat(r.plan.file); err == nil {
		state = fmt.Sprint(info.Size(), info.ModTime().UnixNano())
	}
	settled := state == r.seen
	if r.seen = state; !settled || state == r.known {
		return nil, ""
	}
	r.known = state
	text, err := readFacts(r.plan.file)
	if err != nil {
		return nil, fmt.Sprintf("warning: read topology file: %v; what it said before still counts", err)
	}
	f, err := facts.Parse(text)
	if err != nil {
		return nil, fmt.Sprintf("warning: %s: %v; what it said before still counts", r.plan.file, err)
	}
	if len(f.Edges(r.hosts)) == 0 {
		text = slices.Concat(text, r.plan.more)
		if _, err := facts.Parse(text); err != nil { // it has edges of other hosts
			text = text[:len(text)-len(r.plan.more)]
		}
	}
	if bytes.Equal(text, r.sent) {
		return nil, ""
	}
	r.sent = text
	return text, r.plan.file + " has changed: what it says counts from now on"
}
