package launchers

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"gorun/launcher"
	"gorun/launcher/jobs"
	"gorun/rendezvous/wire"
	"gorun/topology"
)

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
				r.happens("stall", text)
			}
		}
	}
	spec.HostMoves, spec.Output = r.moves, recorded{spec.Output, &r.recorder}
	spec.Whys = r.whys
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
			r.event(time.Now(), "ended", rank.State, e.Rank)
		case e.Enters:
			rank.State = "runs"
		default:
			r.ran, rank.PID, rank.State = true, e.PID, stateOf("runs", e.Spare)
			r.event(time.Now(), "started", "started", e.Rank)
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

// hostUsage notes what the links of a host have carried, and the world that it is in.
func (r *Registration) hostUsage(h jobs.HostStatus) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.carried == nil {
		r.carried = map[string]jobs.HostStatus{}
	}
	old, known := r.carried[h.Name]
	r.carried[h.Name] = h
	if known && h.Renewed > old.Renewed {
		r.event(time.Now(), "link", fmt.Sprintf("%s has renewed connections: %d", h.Name, h.Renewed-old.Renewed))
	}
	if h.Epoch > r.epoch {
		r.epoch = h.Epoch
		r.event(time.Now(), "epoch", fmt.Sprintf("epoch %d begins, with %s on %s", h.Epoch,
			topology.Count(r.record.Ranks, "rank"), topology.Count(len(r.record.Hosts), "host")))
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
		for _, name := range hosts {
			if len(record.Hosts) > 0 && !slices.Contains(record.Hosts, name) {
				r.event(time.Now(), "joined", name+" has joined")
			}
		}
		for _, name := range record.Hosts {
			if !slices.Contains(hosts, name) {
				r.event(time.Now(), "left", name+" is not in the job any more")
			}
		}
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
			r.event(e.Since, "silent", e.Host+" falls silent to "+e.To)
		case e.To != "":
		case e.State == launcher.HostSilent:
			if record.Silent == nil {
				record.Silent = map[string]time.Time{}
			}
			record.Silent[e.Host] = e.Since
			r.event(e.Since, "silent", e.Host+" falls silent")
		default:
			if delete(record.Silent, e.Host); e.State == launcher.HostBack {
				r.event(time.Now(), "back", e.Host+" is heard again")
			}
		}
		for i := range r.ranks {
			if rank := &r.ranks[i]; e.State == launcher.HostLost && rank.Host == e.Host && !rank.Ended() {
				rank.State = "ended with its host"
			}
		}
	})
}

// ranksNow returns the states of the ranks. It is called with mu held.
func (r *Registration) ranksNow() []jobs.RankStatus {
	ranks := append([]jobs.RankStatus{}, r.ranks...)
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
