package detached

import (
	"slices"
	"strconv"
	"time"

	"gorun/launcher"
	"gorun/launcher/jobs"
)

// Watch records the launcher's events.
func (l *Launcher) Watch(spec *launcher.Spec) error {
	if l == nil {
		return nil
	}
	p := spec.Placement
	l.mu.Lock()
	for rank, r := range p.Ranks {
		l.ranks = append(l.ranks, jobs.RankStatus{Rank: rank, Host: p.Hosts[r.Host].Name, State: "has not started"})
	}
	l.mu.Unlock()
	started, next := 0, spec.Watch
	spec.Watch = func(e launcher.RankEvent) {
		next(e)
		l.rank(e)
		if !e.Ended {
			started++
		}
		if started == max(len(p.Ranks), 1) { // an elastic job is under way with its first rank
			l.Report("runs detached")
		}
	}
	nextHost := spec.WatchHosts
	spec.WatchHosts = func(e launcher.HostEvent) {
		nextHost(e)
		l.host(e)
	}
	if spec.Elastic != nil {
		spec.Elastic.World = l.world
	}
	spec.AskUsage, spec.Used = l.askUsage, l.usage
	return l.save(func(r *jobs.Record) {
		if len(p.Ranks) == 0 { // an elastic job, whose record may be from another launcher
			return
		}
		r.Ranks, r.Hosts = len(p.Ranks), nil
		for _, h := range p.Hosts {
			r.Hosts = append(r.Hosts, h.Name)
		}
	})
}

// rank notes the start or the end of a rank.
func (l *Launcher) rank(e launcher.RankEvent) {
	l.update(e.Rank, func(r *jobs.RankStatus) {
		if r.Host = e.Host; e.Ended {
			r.State = "ended with " + strconv.Itoa(e.Code)
		} else {
			r.PID, r.State = e.PID, "runs"
		}
	})
}

// usage notes what a rank uses.
func (l *Launcher) usage(u launcher.RankUsage) {
	l.update(u.Rank, func(r *jobs.RankStatus) {
		r.CPUMS, r.RSS, r.Processes, r.State = u.CPU.Milliseconds(), u.RSS, u.Processes, u.State
	})
}

func (l *Launcher) update(rank int, f func(*jobs.RankStatus)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for rank >= len(l.ranks) { // of an elastic job
		l.ranks = append(l.ranks, jobs.RankStatus{Rank: len(l.ranks)})
	}
	f(&l.ranks[rank])
}

// world records the size and the hosts of an elastic job's new world.
func (l *Launcher) world(ranks int, hosts []string) {
	err := l.save(func(r *jobs.Record) {
		r.Ranks, r.Hosts = ranks, hosts
		r.Partitions = slices.DeleteFunc(r.Partitions, func(p jobs.Partition) bool {
			return !slices.Contains(hosts, p.Host) || !slices.Contains(hosts, p.To)
		})
	})
	if err != nil {
		complain("warning", err)
	}
}

// host records which hosts are silent, and to which others.
func (l *Launcher) host(e launcher.HostEvent) {
	err := l.save(func(r *jobs.Record) {
		r.Partitions = slices.DeleteFunc(r.Partitions, func(p jobs.Partition) bool {
			return p.Host == e.Host && p.To == e.To || e.State == launcher.HostLost && (p.Host == e.Host || p.To == e.Host)
		})
		switch {
		case e.To != "" && e.State == launcher.HostSilent:
			r.Partitions = append(r.Partitions, jobs.Partition{Host: e.Host, To: e.To, Since: e.Since})
		case e.To != "":
		case e.State == launcher.HostSilent:
			if r.Silent == nil {
				r.Silent = map[string]time.Time{}
			}
			r.Silent[e.Host] = e.Since
		default:
			delete(r.Silent, e.Host)
		}
		for i := range l.ranks {
			if rank := &l.ranks[i]; e.State == launcher.HostLost && rank.Host == e.Host && !rank.Ended() {
				rank.State = "ended with its host"
			}
		}
	})
	if err != nil {
		complain("warning", err)
	}
}

// list returns the states of the ranks, and asks their daemons for newer ones, which the next call returns.
func (l *Launcher) list() []jobs.RankStatus {
	select {
	case l.askUsage <- struct{}{}:
	default:
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	ranks := slices.Clone(l.ranks)
	for i := range ranks {
		if since, silent := l.record.Silent[ranks[i].Host]; silent && !ranks[i].Ended() {
			ranks[i].State = "host silent since " + since.Local().Format(time.TimeOnly)
			continue
		}
		for _, p := range l.record.Partitions {
			if p.Host == ranks[i].Host && !ranks[i].Ended() {
				ranks[i].State = "host silent to " + p.To + " since " + p.Since.Local().Format(time.TimeOnly)
			}
		}
	}
	return ranks
}
