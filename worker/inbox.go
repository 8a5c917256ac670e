package worker

import (
	"context"
	"io"

	"gorun/rendezvous/wire"
)

// inbox brings what the launcher sends.
type inbox struct {
	messages chan wire.Message // closed at the end
	err      error             // why nothing comes any more; set before messages is closed
	gone     bool              // no launcher listens any more; only the daemon's loop touches it
}

// read passes on the messages of the launcher, and of launchers that take over from it. another reports whether there
// is one, at the end of from; it may be nil. A read from a pipe cannot be interrupted, so read is not waited for.
func (b *inbox) read(ctx context.Context, from io.Reader, another func() bool) {
	defer close(b.messages)
	in := wire.NewReader(from)
	for {
		m, err := in.Read()
		if err != nil {
			if another == nil || !another() {
				b.err = err
				return
			}
			in = wire.NewReader(from)
			continue
		}
		select {
		case b.messages <- m:
		case <-ctx.Done():
			return
		}
	}
}
