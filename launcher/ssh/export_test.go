package ssh

import "time"

// GiveUpSoon lets c try a server that drops connections only a few times.
func GiveUpSoon(c *Client) {
	c.retry = retry{attempts: 3, first: time.Millisecond, max: time.Millisecond}
}
