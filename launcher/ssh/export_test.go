package ssh

import "time"

// FarAway has c compress all that it sends from now on.
func FarAway(c *Client) { c.plain.Store(plainUploads) }

// GiveUpSoon lets c try a server that drops connections only a few times.
func GiveUpSoon(c *Client) {
	c.retry = retry{attempts: 3, first: time.Millisecond, max: time.Millisecond}
}
