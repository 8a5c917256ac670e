package elastic

import (
	"fmt"
	"slices"
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

// Blacklist is what is not used any more when a process has failed.
type Blacklist int

// What is not used any more.
const (
	BlacklistSlot Blacklist = iota // the slot in which it ran
	BlacklistHost                  // all slots of its host, whose other processes are stopped, as Horovod has it
)

var blacklists = [...]string{"slot", "host"}

func (b Blacklist) String() string { return blacklists[b] }

// ParseBlacklist reads a value of --blacklist.
func ParseBlacklist(s string) (Blacklist, error) {
	if i := slices.Index(blacklists[:], s); i >= 0 {
		return Blacklist(i), nil
	}
	return 0, fmt.Errorf("%q is not slot or host", s)
}

// Policy is what the user asked for.
type Policy struct {
	NP    int // processes that the first world needs
	MinNP int // fewer never train
	MaxNP int // more never run; 0 for as many as there are slots
	// Spares is how many more processes start than the world has, and wait. With them, MaxNP is not 0.
	Spares int
	OnFailure
	// ResetLimit is how many worlds may follow the first; negative for any number.
	ResetLimit int
	// LossLimit ends the job when all processes were lost that many times, at once or one after the other, without a
	// commit in between. Check turns 0 into DefaultLossLimit; in a policy that Check has not seen, 0 means no limit.
	LossLimit int
	Blacklist
	// CooldownMin is how long a slot whose process failed, or a host that was lost, is not used the first time. Each
	// further time takes twice as long, up to CooldownMax. If both are 0, such a slot waits until discovery has
	// withdrawn the host and offers it again, and such a host as blacklist.go describes.
	CooldownMin, CooldownMax time.Duration
	// Timeout is how long the job waits for enough slots.
	Timeout time.Duration
	// Listed reports that the list of hosts will never change, so that waiting for others is in vain.
	Listed bool
}

const (
	// DefaultTimeout is Horovod's --elastic-timeout.
	DefaultTimeout = 600 * time.Second
	// DefaultLossLimit lets a job survive the loss of a host that happened to have all of its processes. A job whose
	// script fails wherever it runs still ends soon.
	DefaultLossLimit = 3
)

// Fixed is the policy of a job that is not elastic.
func Fixed(np int) Policy {
	return Policy{NP: np, MinNP: np, MaxNP: np, OnFailure: EndJob, ResetLimit: -1, Listed: true}
}

// Check completes a policy whose numbers are what each of them may be, and reports what contradicts itself, in the words
// of the flags.
func (p Policy) Check() (Policy, error) {
	if p.NP == 0 {
		p.NP = p.MinNP
	}
	if p.MinNP == 0 {
		p.MinNP = p.NP
	}
	if p.Spares > 0 && p.MaxNP == 0 {
		p.MaxNP = p.NP
	}
	if p.Timeout == 0 && p.OnFailure != EndJob {
		p.Timeout = DefaultTimeout
	}
	if p.LossLimit == 0 {
		p.LossLimit = DefaultLossLimit
	}
	switch {
	case p.MinNP > p.NP:
		return p, fmt.Errorf("--min-np %d exceeds -np %d", p.MinNP, p.NP)
	case p.MaxNP > 0 && p.MaxNP < p.NP:
		return p, fmt.Errorf("--max-np %d is less than -np %d", p.MaxNP, p.NP)
	}
	return p, nil
}
