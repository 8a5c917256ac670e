package launcher

import "time"

// settleTime is how long the line about a world is held back after an error of the script: the job may end soon.
const settleTime = time.Second

// worldNews decides when the user reads about a world. A mistake in the script ends one process after another, and each
// time the rest enter another world, until none is left. The user need not read about those worlds.
type worldNews struct {
	mistake time.Time   // when a process last ended with an error of its own; zero if none has
	held    []heldWorld // lines about worlds that may not last
}

type heldWorld struct {
	since time.Time
	text  string
}

// begins takes a world that has begun, and returns the lines to print now.
func (n *worldNews) begins(now time.Time, text string) []string {
	if !n.mistake.IsZero() && now.Sub(n.mistake) < settleTime {
		n.held = append(n.held, heldWorld{now, text})
		return nil
	}
	return append(n.all(), text)
}

// lasting returns the held lines about worlds that have lasted for settleTime.
func (n *worldNews) lasting(now time.Time) (texts []string) {
	for len(n.held) > 0 && now.Sub(n.held[0].since) >= settleTime {
		texts, n.held = append(texts, n.held[0].text), n.held[1:]
	}
	return texts
}

// all returns all held lines.
func (n *worldNews) all() (texts []string) {
	for _, w := range n.held {
		texts = append(texts, w.text)
	}
	n.held = nil
	return texts
}
