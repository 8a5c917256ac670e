package launcher

import (
	"fmt"
	"math"

	"gorun/rendezvous/wire"
	"gorun/topology"
)

// network is what the job found out about the network between its hosts.
type network struct {
	shown   uint32              // epoch of the ring that the user saw last
	edges   map[int][]wire.Edge // by the host that measured them
	carried carried
}

// measured returns what daemons have measured, by host ids, without values that cannot be true.
func (n *network) measured(hosts hostList) (edges []topology.Edge) {
	number := func(x float64) float64 {
		if x > 0 && !math.IsInf(x, 0) {
			return x
		}
		return 0
	}
	for _, h := range hosts {
		for _, e := range n.edges[h.id] {
			found := topology.Edge{From: h.id, To: e.To, RTT: number(e.RTT), Bandwidth: number(e.Bandwidth)}
			if e.To >= 0 && e.To < len(hosts) && e.To != h.id && found.RTT+found.Bandwidth > 0 {
				found.InJob = found.Bandwidth > 0
				edges = append(edges, found)
			}
		}
	}
	return edges
}

// carried sums up what links have done, those of all hosts as far as daemons lived to report it.
type carried wire.Links

func (c *carried) add(l wire.Links) {
	c.SentBytes += l.SentBytes
	c.RDMABytes += l.RDMABytes
	c.RDMAFailures += l.RDMAFailures
	c.ResentBytes += l.ResentBytes
	c.ResentSegments += l.ResentSegments
	c.Renewed += l.Renewed
	c.Damaged += l.Damaged
	c.BusyBytes += l.BusyBytes
	c.BusyUS += l.BusyUS
}

// text is for the end of a job, "" if nothing travelled between hosts.
func (c *carried) text() string {
	if c.SentBytes == 0 {
		return ""
	}
	over := ""
	if c.RDMABytes > 0 {
		over = fmt.Sprintf(" (%d over RDMA)", c.RDMABytes)
	}
	text := fmt.Sprintf("between hosts: sent %d bytes%s, and %d bytes again in %s; connections were renewed %s",
		c.SentBytes, over, c.ResentBytes, topology.Count(int(c.ResentSegments), "segment"), topology.Count(int(c.Renewed+1)/2, "time"))
	if c.Damaged > 0 {
		text += fmt.Sprintf(", %s because data came damaged", topology.Count(int(c.Damaged), "time"))
	}
	if c.RDMAFailures > 0 {
		text += fmt.Sprintf("; queue pairs failed %s", topology.Count(int(c.RDMAFailures), "time"))
	}
	return text
}
