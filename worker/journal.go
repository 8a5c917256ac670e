package worker

import (
	"log/slog"
	"strings"

	"gorun/rendezvous/wire"
)

// mostComplaints limits the lines of a daemon's log that users see in a job, so that something that goes wrong again
// and again does not fill a terminal.
const mostComplaints = 100

// journal is a daemon's log, whose lines the loop sends to the launcher. No one who writes a line waits: lines that
// come faster than they are sent are dropped.
type journal struct {
	*slog.Logger
	lines chan string // nil if the user did not ask for them
	out   *wire.Writer
	count int // lines that were sent, or dropped after the most
}

// openJournal returns a journal of warnings and errors; without verbose it has no lines.
func openJournal(out *wire.Writer, verbose bool) *journal {
	if !verbose {
		return &journal{Logger: slog.New(slog.DiscardHandler), out: out}
	}
	j := &journal{lines: make(chan string, mostComplaints), out: out}
	leaveOutTime := func(groups []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey && len(groups) == 0 {
			return slog.Attr{} // it is sent at once
		}
		return a
	}
	j.Logger = slog.New(slog.NewTextHandler(j, &slog.HandlerOptions{Level: slog.LevelWarn, ReplaceAttr: leaveOutTime}))
	return j
}

// Write takes a line of the log.
func (j *journal) Write(line []byte) (int, error) {
	select {
	case j.lines <- strings.TrimSpace(string(line)):
	default:
	}
	return len(line), nil
}

// tell sends a line of the log to the launcher.
func (j *journal) tell(line string) {
	if j.count++; j.count > mostComplaints {
		return
	}
	if j.count == mostComplaints {
		line += " (this host tells no more of its log)"
	}
	j.out.Write(&wire.Log{Text: line})
}

// finish sends the lines that were written while the daemon ended.
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
