package ssh

import "time"

// FarAway has c compress all that it sends from now on.
func FarAway(c *Client) { c.plain.Store(plainUploads) }

// Near has c take all hosts for near, however busy they are.
func Near(c *Client) { c.near = func(*Conn) bool { return true } }

// Explain says how the program of a session ended.
func (s *Session) Explain(err error) error { return s.explain(err, StepStart) }

// PieceSize is half of what is under way of an upload to a host that is near.
const PieceSize = pieceSize

// PerServer is how many logins are under way with one server.
const PerServer = perServer

// GiveUpSoon lets c try a server that drops connections only a few times.
func GiveUpSoon(c *Client) {
	c.retry = retry{attempts: 3, first: time.Millisecond, max: time.Millisecond}
}

// Hasty lets c wait for a silent host, and hosts for it, less than its own others.
func Hasty(c *Client) {
	c.hostTimeout, c.waitEvery, c.silence, c.quietLogin = 2*time.Second, 300*time.Millisecond, time.Second, 300*time.Millisecond
}

// Impatient has c take handshakes for hung soon.
func Impatient(c *Client) { c.gate.hangAfter = 100 * time.Millisecond }
