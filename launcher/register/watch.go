package register

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"gorun/launcher"
	"gorun/launcher/jobs"
	"gorun/rendezvous/wire"
)

// maxEvents is how many stalls and moves are kept.
const maxEvents = 100

// Watch records the launcher's events.
func (r *Registration) Watch(spec *launcher.Spec) error {
	if r == nil {
		return nil
	}
	p := spec.Placement
	r.mu.Lock()
	for rank, at := range p.Ranks {
		r.ranks = append(r.ranks, jobs.RankStatus{Rank: rank, Host: p.Hosts[at.Host].Name, State: "has not started"})
	}
	r.mu.Unlock()
	next := spec.Watch
	spec.Watch = func(e launcher.RankEvent) {
		next(e)
		r.rank(e)
	}
	nextHost := spec.WatchHosts
	spec.WatchHosts = func(e launcher.HostEvent) {
		nextHost(e)
		r.host(e)
	}
	if spec.Elastic != nil {
		spec.Elastic.World = r.world
	}
	if note := spec.Note; note != nil {
		spec.Note = func(format string, args ...any) {
			note(format, args...)
			if text, stalled := strings.CutPrefix(fmt.Sprintf(format, args...), "gorun: stall: "); stalled {
				r.event("stall", text)
			}
		}
	}
	spec.HostMoves, spec.Output = r.moves, recorded{spec.Output, &r.recorder}
	spec.AskWhy, spec.AskNative, spec.Inspected = r.askWhy, r.askNative, r.inspected
	spec.Number = func() int { return r.Record().ID }
	spec.Drains = r.drains
	spec.AskUsage, spec.Used, spec.UsedHost = r.askUsage, r.usage, r.hostUsage
	return r.Update(func(record *jobs.Record) {
		if len(p.Ranks) == 0 { // an elastic job, whose record may be from another launcher
			return
		}
		record.Ranks, record.Hosts = len(p.Ranks), nil
		for _, h := range p.Hosts {
			record.Hosts = append(record.Hosts, h.Name)
		}
	})
}

// rank notes the start or the end of a rank.
func (r *Registration) rank(e launcher.RankEvent) {
	r.update(e.Rank, func(rank *jobs.RankStatus) {
		rank.Host = e.Host
		switch {
		case e.Ended:
			rank.State = "ended with " + strconv.Itoa(e.Code)
		case e.Enters:
			rank.State = "runs"
		default:
			r.ran, rank.PID, rank.State = true, e.PID, stateOf("runs", e.Spare)
		}
	})
}

// usage notes what a rank uses.
func (r *Registration) usage(u wire.RankUsage, spare bool) {
	r.update(u.Rank, func(rank *jobs.RankStatus) {
		rank.CPUMS, rank.At, rank.RSS, rank.Processes, rank.Split, rank.Arena = u.CPUMS, u.At, u.RSS, u.Processes, u.Split, u.Arena
		if rank.State = u.Split.Does(u.State); spare {
			rank.State = stateOf(u.State, true)
		}
	})
}

// stateOf marks the state of a spare.
func stateOf(state string, spare bool) string {
	if spare {
		return "spare: " + state
	}
	return state
}

// hostUsage notes what the links of a host have carried.
func (r *Registration) hostUsage(h jobs.HostStatus) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.carried == nil {
		r.carried = map[string]jobs.HostStatus{}
	}
	r.carried[h.Name] = h
}

// Hosts returns what is known of the hosts of the job's world.
func (r *Registration) Hosts() (all []jobs.HostStatus) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range r.record.Hosts {
		s := r.carried[name]
		s.Name = name
		all = append(all, s)
	}
	return all
}

// Counted returns how many events of each kind there were.
func (r *Registration) Counted() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.counted)
}

// State returns what is known of the job, and asks the daemons for newer figures, which the next call returns.
func (r *Registration) State() jobs.State {
	s := jobs.State{Record: r.Record(), Ranks: r.Ranks(), Hosts: r.Hosts(), Counted: r.Counted()}
	r.mu.Lock()
	s.Events, s.Happened = slices.Clone(r.events), r.happened
	r.mu.Unlock()
	return s
}

// event notes a stall or a move.
func (r *Registration) event(kind, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, jobs.Event{At: time.Now(), Kind: kind, Text: text})
	r.events = r.events[max(len(r.events)-maxEvents, 0):]
	r.happened++
	if r.counted == nil {
		r.counted = map[string]int{}
	}
	r.counted[kind]++
}

// moves notes that a host is about to be moved, or has been.
func (r *Registration) moves(host string, begins bool, text string) {
	if begins {
		r.event("move", host+" is about to be moved: "+text)
	} else {
		r.event("moved", host+" was moved: "+text)
	}
}

// recorded is the output of a job, whose last lines are kept.
type recorded struct {
	launcher.Output
	to *jobs.Recorder
}

func (o recorded) Write(rank int, stream wire.OutputStream, data []byte) {
	o.to.Write(rank, stream == wire.Stderr, data)
	o.Output.Write(rank, stream, data)
}

// Lines returns what ranks wrote, from a number on, for a Source that may be in another process.
func (r *Registration) Lines(_ context.Context, after int64) (jobs.Lines, error) {
	return r.recorder.After(after), nil
}

// Status is State, for a Source that may be in another process.
func (r *Registration) Status(context.Context) (jobs.State, error) { return r.State(), nil }

func (r *Registration) update(rank int, f func(*jobs.RankStatus)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for rank >= len(r.ranks) { // of an elastic job
		r.ranks = append(r.ranks, jobs.RankStatus{Rank: len(r.ranks)})
	}
	f(&r.ranks[rank])
}

// world records the size and the hosts of an elastic job's new world.
func (r *Registration) world(ranks int, hosts []string) {
	r.change(func(record *jobs.Record) {
		record.Ranks, record.Hosts = ranks, hosts
		record.Partitions = slices.DeleteFunc(record.Partitions, func(p jobs.Partition) bool {
			return !slices.Contains(hosts, p.Host) || !slices.Contains(hosts, p.To)
		})
	})
}

// host records which hosts are silent, and to which others.
func (r *Registration) host(e launcher.HostEvent) {
	r.change(func(record *jobs.Record) {
		record.Partitions = slices.DeleteFunc(record.Partitions, func(p jobs.Partition) bool {
			return p.Host == e.Host && p.To == e.To || e.State == launcher.HostLost && (p.Host == e.Host || p.To == e.Host)
		})
		switch {
		case e.To != "" && e.State == launcher.HostSilent:
			record.Partitions = append(record.Partitions, jobs.Partition{Host: e.Host, To: e.To, Since: e.Since})
		case e.To != "":
		case e.State == launcher.HostSilent:
			if record.Silent == nil {
				record.Silent = map[string]time.Time{}
			}
			record.Silent[e.Host] = e.Since
		default:
			delete(record.Silent, e.Host)
		}
		for i := range r.ranks {
			if rank := &r.ranks[i]; e.State == launcher.HostLost && rank.Host == e.Host && !rank.Ended() {
				rank.State = "ended with its host"
			}
		}
	})
}

// Ranks returns the states of the ranks, and asks their daemons for newer ones, which the next call returns.
func (r *Registration) Ranks() []jobs.RankStatus {
	select {
	case r.askUsage <- struct{}{}:
	default:
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	ranks := slices.Clone(r.ranks)
	for i := range ranks {
		if since, silent := r.record.Silent[ranks[i].Host]; silent && !ranks[i].Ended() {
			ranks[i].State = "host silent since " + since.Local().Format(time.TimeOnly)
			continue
		}
		for _, p := range r.record.Partitions {
			if p.Host == ranks[i].Host && !ranks[i].Ended() {
				ranks[i].State = "host silent to " + p.To + " since " + p.Since.Local().Format(time.TimeOnly)
			}
		}
	}
	return ranks
}
