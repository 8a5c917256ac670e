package ranks

import (
	"context"

	"gorun/rendezvous/wire"
	"gorun/worker/proc"
)

// Input is the launcher's standard input, which some processes read.
type Input struct {
	readers []int
	group   *proc.Group
	out     *wire.Writer
	typed   chan *wire.Stdin
}

// readersOf returns the processes of the job that read the launcher's standard input.
func readersOf(job *wire.Job) []int {
	if job.Readers == nil {
		return []int{0}
	}
	return job.Readers
}

// Take takes some of the input; ok is false if it is more than the launcher may send.
func (in *Input) Take(m *wire.Stdin) (ok bool) {
	select {
	case in.typed <- m:
		return true
	default:
		return false
	}
}

// Feed passes the input on to the processes that read it until ctx ends. It has a goroutine of its own, because a
// process may never read.
func (in *Input) Feed(ctx context.Context) {
	for {
		select {
		case m := <-in.typed:
			for _, process := range in.readers {
				w := in.group.Stdin(process)
				if w == nil {
					continue // it is another host's, or has ended
				}
				w.Write(m.Data) // an error means that the rank has closed its end, which is its right
				if m.EOF {
					w.Close()
				}
			}
			in.out.Write(&wire.Taken{})
		case <-ctx.Done():
			return
		}
	}
}
