package launcher

import (
	"time"

	"gorun/launcher/stall"
	"gorun/launcher/why"
	"gorun/rendezvous/wire"
)

// inspection is a round in which the daemons report what their ranks do.
type inspection struct {
	how   wire.Inspect
	over  <-chan time.Time // when the job no longer waits for them; nil while there is no round
	found map[int]*wire.Inspected
	then  func()        // takes what was found
	asked time.Time     // when it began
	ahead map[int]int64 // how much the clocks of hosts are ahead of this one's, in microseconds

	flights map[int]arrived // what the flight recorders have, by host
	last    []why.Finding   // of the last round
}

// spareState describes a process that waits for its first world.
const spareState = "spare: waits for its first world"

// finding returns what was found about a rank of a host. Waits count if they are longer than the job's patience.
func (i *inspection) finding(rank int, p process, h *host, all stall.Answers, patience time.Duration) why.Finding {
	f := why.Finding{Rank: rank, Host: h.name}
	found := i.found[h.id]
	switch {
	case p.exited:
		f.State, f.Ended = "has ended", true
		_, f.Behind = all.Behind(rank, h.id) // it never comes
		return f
	case !h.up:
		f.State, f.Silent = "its host was not reached", true
		return f
	case !p.started:
		f.State = "has not started"
		return f
	case p.spare && found != nil:
		f.State = spareState
		return f
	case found == nil && h.Heard.Busy(i.asked):
		f.State, f.Unread = "nobody reads what it writes", true
		return f
	case found == nil && h.Heard.Last(time.Now()).After(i.asked):
		f.State = "its host has not answered yet"
		return f
	case found == nil:
		f.State, f.Silent = "its host does not answer", true
		return f
	}
	f.State, f.Does = "runs", all.Of(rank, h.id)
	for _, s := range found.Ranks {
		if s.Process != rank {
			continue
		}
		f.State, f.PID, f.Stack, f.Kernel, f.Signs = s.State, s.PID, s.Stack, s.Kernel, (*why.Signs)(s.Signs)
		f.Native, f.Tool, f.Notes, f.Threads = s.Native, s.Tool, s.Notes, s.Threads
		if s.Split != nil {
			f.Activity, f.For, f.Split = s.Split.Activity, s.Split.For, s.Split
		}
	}
	long := all.Lasting(patience)
	waited, behind := long.Behind(rank, h.id)
	f.Behind, f.Waited = behind, waited.Microseconds()
	f.Waits = long.Waits(rank, h.id) && f.Activity != "waits for data"
	f.Stays = f.For >= patience.Microseconds()
	f.Ahead = i.ahead[h.id]
	for _, l := range found.Links {
		if l.Peer >= 0 && l.Peer < len(all.Hosts) {
			f.Links = append(f.Links, why.Link{Peer: all.Hosts[l.Peer], LinkState: l})
		}
	}
	return f
}

// arrived is what a daemon sent, and how much its clock is ahead of the launcher's.
type arrived struct {
	*wire.Flight
	ahead int64 // in microseconds
}

// aheadBy returns how much a clock is ahead at least, if it showed a time at some moment between from and to, as an
// answer may be long under way. All are in microseconds.
func aheadBy(shown, from, to int64) int64 { return shown - min(max(shown, from), to) }

// aheadOf returns how much a host's clock is ahead at least, by the time in a message that has just arrived.
func (i *inspection) aheadOf(shown int64) int64 {
	now := time.Now()
	from := now
	if i.over != nil { // otherwise nobody asked
		from = i.asked
	}
	return aheadBy(shown, from.UnixMicro(), now.UnixMicro())
}
