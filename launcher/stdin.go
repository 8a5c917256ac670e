package launcher

import (
	"io"
	"slices"

	"gorun/launcher/talk"
	"gorun/rendezvous/wire"
)

// feedStdin begins to forward standard input when the last of the ranks that read it has started.
func (s *Spec) feedStdin(started int, of processes, hosts hostList) {
	readers := s.Readers
	if readers == nil {
		readers = []int{0}
	}
	waits := func(p int) bool { return !of.at(p).started }
	if s.Stdin == nil || !slices.Contains(readers, started) || slices.ContainsFunc(readers, waits) {
		return
	}
	var queues []*talk.Mailbox
	for _, h := range hosts {
		if slices.ContainsFunc(readers, func(p int) bool { return of.on(h.id, p) }) {
			queues = append(queues, &h.Queue)
		}
	}
	go forwardStdin(s.Stdin, queues) // not waited for: a read from a terminal cannot be interrupted
}

// forwardStdin sends standard input to the hosts of the ranks that read it. The slowest one sets the pace.
func forwardStdin(r io.Reader, queues []*talk.Mailbox) {
	buf := make([]byte, 32<<10)
	for {
		n, err := r.Read(buf)
		m := &wire.Stdin{Data: append([]byte(nil), buf[:n]...), EOF: err != nil}
		for _, q := range queues {
			q.AwaitRoom()
			q.Put(m)
		}
		if err != nil {
			return
		}
	}
}
