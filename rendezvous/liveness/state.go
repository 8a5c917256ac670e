package liveness

// State is what is known of a host. A host that was evicted never comes back: its machine joins as another host.
type State int

// States, in the order in which a host that dies passes through them.
const (
	Alive       State = iota // heard
	Suspect                  // silent, within its lease
	Paused                   // silent, and expected to be for longer: it announced a move
	Unreachable              // its connection has ended and it cannot be reached, or its lease is over
	Dead                     // evicted
)

func (s State) String() string {
	return [...]string{"alive", "suspect", "paused", "unreachable", "dead"}[s]
}
