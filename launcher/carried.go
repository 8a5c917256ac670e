package launcher

import (
	"fmt"

	"gorun/rendezvous/wire"
	"gorun/topology"
)

// carried sums up what the links of all hosts have done, as far as daemons lived to report it.
type carried wire.Links

func (c *carried) add(l wire.Links) {
	c.SentBytes += l.SentBytes
	c.ResentBytes += l.ResentBytes
	c.ResentSegments += l.ResentSegments
	c.Renewed += l.Renewed
	c.Damaged += l.Damaged
}

// text is for the end of a job, "" if nothing travelled between hosts.
func (c *carried) text() string {
	if c.SentBytes == 0 {
		return ""
	}
	text := fmt.Sprintf("between hosts: sent %d bytes, and %d bytes again in %s; connections were renewed %s",
		c.SentBytes, c.ResentBytes, topology.Count(int(c.ResentSegments), "segment"), topology.Count(int(c.Renewed+1)/2, "time"))
	if c.Damaged > 0 {
		text += fmt.Sprintf(", %s because data came damaged", topology.Count(int(c.Damaged), "time"))
	}
	return text
}
