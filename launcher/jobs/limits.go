package jobs

import "time"

// Limits says which jobs are kept when they have ended.
type Limits struct {
	Detached   time.Duration // for how long, with their output
	Foreground time.Duration // for how long; their users have seen how they ended
	Most       int           // so many foreground jobs, the latest
}

// DefaultLimits holds unless a user asks for less.
var DefaultLimits = Limits{Detached: 30 * 24 * time.Hour, Foreground: 24 * time.Hour, Most: 10}

// Expired returns the records that are not kept any longer. all is in the order of their numbers.
//
// A lost job counts from its start, because its end is unknown. A lost job of another machine is kept as long as any
// job: its launcher may still run, if the machines share a file system without locks.
func (l Limits) Expired(all []Record, now time.Time, machine string) (old []Record) {
	later := 0 // foreground jobs that ended, and have greater numbers
	for i := len(all) - 1; i >= 0; i-- {
		r := all[i]
		since, limit := r.Ended, l.Detached
		switch r.State {
		case Ended, Moved:
		case Lost:
			since = r.Started
		default:
			continue
		}
		if r.State == Lost && r.Machine != machine {
			limit = max(limit, DefaultLimits.Detached)
		} else if r.Foreground {
			later++
			limit = l.Foreground
		}
		if now.Sub(since) > limit || r.Foreground && later > l.Most && (r.State != Lost || r.Machine == machine) {
			old = append(old, r)
		}
	}
	return old
}
