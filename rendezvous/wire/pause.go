package wire

// Pause is a message between daemons about a pause between two operations; package pause decides what follows from it.
type Pause struct {
	From    int      `msgpack:"from"`
	Epoch   uint32   `msgpack:"epoch"`
	Verb    string   `msgpack:"verb"`
	Number  uint32   `msgpack:"number"` // of the pause
	Request uint32   `msgpack:"wish"`   // the sender's own number for the pause that it asks for
	Order   []int    `msgpack:"order"`  // of the ring, if it changes
	Why     []string `msgpack:"why"`    // reason for each edge of it
	Text    string   `msgpack:"text"`   // why the ring changes, or why there is no pause
}

// Verbs of a Pause: to the coordinator, then from it.
const (
	PauseAsk   = "ask"   // for a pause
	PauseDone  = "done"  // with the pause that was asked for
	PauseQuiet = "quiet" // nothing is under way here
	PauseGone  = "gone"  // operations resume here: the pause is over

	PauseStop = "stop" // start no more operations
	PauseGo   = "go"   // resume operations
	PauseHeld = "held" // the receiver holds the pause
	PauseOver = "over" // the coordinator no longer knows the receiver's request
)

// Reordered reports to the launcher that the ring of a world has changed, which ranks do not notice.
type Reordered struct {
	World  World  `msgpack:"world"`
	Former []int  `msgpack:"former"` // host ids
	Text   string `msgpack:"text"`   // why
}

func (*Pause) kind() byte     { return 38 }
func (*Reordered) kind() byte { return 26 }
