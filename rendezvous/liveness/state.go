package liveness

// State is the state of a host. Hosts owns the states that the launcher acts on; Peers owns the states that a host
// reports about its peers. An evicted host never comes back: its machine joins as another host.
type State int

// States, in the order in which a host that dies passes through them.
const (
	Alive       State = iota // heard
	Suspect                  // silent, within its lease
	Paused                   // silent, and expected to be for longer: it announced a move
	Unreachable              // to the launcher: its connection has ended; to a peer: its lease is over
	Dead                     // evicted
)

func (s State) String() string {
	return [...]string{"alive", "suspect", "paused", "unreachable", "dead"}[s]
}
