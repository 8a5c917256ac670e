package elastic

import (
	"fmt"
	"time"
)

// OnFailure is what follows when a process or a host is lost.
type OnFailure int

// What follows.
const (
	Replace OnFailure = iota // go on at once, with free slots in the place of what was lost, if there are any
	Shrink                   // go on at once with the survivors alone; free slots join at the next commit
	Wait                     // wait for as many processes as before; after the elastic timeout go on with fewer
	EndJob                   // a job of fixed size
)

var onFailure = [...]string{"replace", "shrink", "wait", "end"}

func (o OnFailure) String() string { return onFailure[o] }

// ParseOnFailure reads a value of --on-failure.
func ParseOnFailure(s string) (OnFailure, error) {
	for i, name := range onFailure[:EndJob] {
		if s == name {
			return OnFailure(i), nil
		}
	}
	return 0, fmt.Errorf("%q is not replace, shrink or wait", s)
}

// Policy is what the user asked for.
type Policy struct {
	NP    int // processes that the first world needs
	MinNP int // fewer never train
	MaxNP int // more never run; 0 for as many as there are slots
	OnFailure
	// ResetLimit is how many worlds may follow the first; negative for any number.
	ResetLimit int
	// A slot whose process failed, and a host that was lost, is not used for a while: CooldownMin the first
	// time, twice as long each further time, up to CooldownMax. Both 0: the slot until discovery has withdrawn the
	// host and offers it again, the host as blacklist.go says.
	CooldownMin, CooldownMax time.Duration
	// Timeout is how long the job waits for enough slots.
	Timeout time.Duration
	// Listed says that the list of hosts will never change, so that waiting for others is in vain.
	Listed bool
}

// DefaultTimeout is Horovod's --elastic-timeout.
const DefaultTimeout = 600 * time.Second

// Fixed is the policy of a job that is not elastic.
func Fixed(np int) Policy {
	return Policy{NP: np, MinNP: np, MaxNP: np, OnFailure: EndJob, ResetLimit: -1, Listed: true}
}

// Check completes a policy and reports what contradicts itself, in the words of the flags.
func (p Policy) Check() (Policy, error) {
	if p.NP == 0 {
		p.NP = p.MinNP
	}
	if p.MinNP == 0 {
		p.MinNP = p.NP
	}
	if p.Timeout == 0 && p.OnFailure != EndJob {
		p.Timeout = DefaultTimeout
	}
	switch {
	case p.NP < 1 || p.MinNP < 1 || p.MaxNP < 0:
		return p, fmt.Errorf("-np, --min-np and --max-np must be positive")
	case p.MinNP > p.NP:
		return p, fmt.Errorf("--min-np %d exceeds -np %d", p.MinNP, p.NP)
	case p.MaxNP > 0 && p.MaxNP < p.NP:
		return p, fmt.Errorf("--max-np %d is less than -np %d", p.MaxNP, p.NP)
	case p.CooldownMin < 0 || p.CooldownMax < p.CooldownMin || p.CooldownMin == 0 && p.CooldownMax > 0:
		return p, fmt.Errorf("--blacklist-cooldown-range %v %v is not a range", p.CooldownMin.Seconds(), p.CooldownMax.Seconds())
	case p.Timeout < 0:
		return p, fmt.Errorf("--elastic-timeout must be positive")
	}
	return p, nil
}
