package worker

import (
	"log/slog"
	"strings"

	"gorun/rendezvous/wire"
)

// mostComplaints are what a daemon tells of its log in a job: something that goes wrong again and again fills no terminal.
const mostComplaints = 100

// journal has the lines of a daemon's log for the loop, which tells the launcher. Nobody who writes one waits: lines that
// come faster than they are told are dropped.
type journal chan string

// openJournal makes the log. Nobody reads it, unless the user asked for -v: then warnings and errors are told.
func (d *daemon) openJournal() *slog.Logger {
	if !d.job.Verbose {
		return slog.New(slog.DiscardHandler)
	}
	d.complaints = make(journal, mostComplaints)
	return slog.New(slog.NewTextHandler(d.complaints, &slog.HandlerOptions{Level: slog.LevelWarn, ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey && len(groups) == 0 {
			return slog.Attr{} // it is told at once
		}
		return a
	}}))
}

func (j journal) Write(line []byte) (int, error) {
	select {
	case j <- strings.TrimSpace(string(line)):
	default:
	}
	return len(line), nil
}

// complain tells the launcher a line of the log.
func (d *daemon) complain(line string) {
	if d.complained++; d.complained > mostComplaints {
		return
	}
	if d.complained == mostComplaints {
		line += " (this host tells no more of its log)"
	}
	d.out.Write(&wire.Log{Text: line})
}

// lastComplaints tells what was said while the daemon ended.
func (d *daemon) lastComplaints() {
	for {
		select {
		case line := <-d.complaints:
			d.complain(line)
		default:
			return
		}
	}
}
