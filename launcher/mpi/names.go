package mpi

import "gorun/rendezvous/wire"

// Names are the ports that ranks of a job have published, by service.
type Names map[string]string

// mostNames bounds what they take: a rank may publish without end.
const mostNames = 1 << 14

// Answer does what a rank asks for, and returns the answer.
func (n *Names) Answer(m *wire.Name) *wire.Name {
	port, known := (*n)[m.Service]
	answer := &wire.Name{Rank: m.Rank, Asks: m.Asks, Service: m.Service, Port: port, OK: known}
	switch m.Asks {
	case wire.NamePublish:
		if answer.OK = !known && len(*n) < mostNames; answer.OK {
			if *n == nil {
				*n = Names{}
			}
			(*n)[m.Service] = m.Port
		}
	case wire.NameUnpublish:
		delete(*n, m.Service)
	case wire.NameLookup:
	default:
		answer.OK = false
	}
	return answer
}
