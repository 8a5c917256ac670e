package wire

// Pause is what daemons say to each other about standing still between two operations; package pause tells what
// follows from it.
type Pause struct {
	From   int      `msgpack:"from"`
	Epoch  uint32   `msgpack:"epoch"`
	Verb   string   `msgpack:"verb"`
	Number uint32   `msgpack:"number"` // of the pause
	Wish   uint32   `msgpack:"wish"`   // of a host for a pause: its own number for it
	Order  []int    `msgpack:"order"`  // of the ring, if it is another one
	Why    []string `msgpack:"why"`    // reason for each edge of it
	Cost   Cost     `msgpack:"cost"`   // of messages, if it is another one
	Text   string   `msgpack:"text"`   // why ring or cost are other ones, or why there is no pause
}

// Verbs of a Pause: to the coordinator, then from it.
const (
	PauseAsk   = "ask"   // for a pause
	PauseDone  = "done"  // with the pause that was asked for
	PauseQuiet = "quiet" // nothing is under way here
	PauseGone  = "gone"  // on: the pause is over here

	PauseStop = "stop" // begin nothing more
	PauseGo   = "go"   // on
	PauseHeld = "held" // the pause is the receiver's
	PauseOver = "over" // the coordinator knows nothing of the wish any more
)

// Reordered tells the launcher that the ring of a world is another one, which ranks do not notice.
type Reordered struct {
	World  World  `msgpack:"world"`
	Former []int  `msgpack:"former"` // host ids
	Text   string `msgpack:"text"`   // why
}

func (*Pause) kind() byte     { return 38 }
func (*Reordered) kind() byte { return 26 }
