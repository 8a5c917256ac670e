package worker

import (
	"log/slog"
	"strings"

	"gorun/rendezvous/wire"
)

// mostComplaints are what a daemon tells of its log in a job: something that goes wrong again and again fills no terminal.
const mostComplaints = 100

// journal has the lines of a daemon's log for the loop, which tells the launcher. Nothing that writes one waits: lines that
// come faster than they are told are dropped.
type journal struct {
	lines chan string // nil if the user does not want to know
	out   *wire.Writer
	count int // lines that were told, or dropped after the most
}

// openJournal makes the journal, and the log that it is of. Without verbose it has no lines, and otherwise warnings and errors.
func openJournal(out *wire.Writer, verbose bool) (*journal, *slog.Logger) {
	if !verbose {
		return &journal{out: out}, slog.New(slog.DiscardHandler)
	}
	j := &journal{lines: make(chan string, mostComplaints), out: out}
	leaveOutTime := func(groups []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey && len(groups) == 0 {
			return slog.Attr{} // it is told at once
		}
		return a
	}
	return j, slog.New(slog.NewTextHandler(j, &slog.HandlerOptions{Level: slog.LevelWarn, ReplaceAttr: leaveOutTime}))
}

// Write takes a line of the log.
func (j *journal) Write(line []byte) (int, error) {
	select {
	case j.lines <- strings.TrimSpace(string(line)):
	default:
	}
	return len(line), nil
}

// tell tells the launcher a line of the log.
func (j *journal) tell(line string) {
	if j.count++; j.count > mostComplaints {
		return
	}
	if j.count == mostComplaints {
		line += " (this host tells no more of its log)"
	}
	j.out.Write(&wire.Log{Text: line})
}

// finish tells what was said while the daemon ended.
func (j *journal) finish() {
	for {
		select {
		case line := <-j.lines:
			j.tell(line)
		default:
			return
		}
	}
}
