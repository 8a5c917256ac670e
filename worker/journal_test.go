package worker

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"gorun/rendezvous/wire"
)

// TestJournal: of a daemon's log the launcher hears warnings, as many as a terminal bears, if the user asked for -v.
// No one who logs waits.
func TestJournal(t *testing.T) {
	for _, tt := range []struct {
		verbose bool
		lines   int
		told    int
	}{{false, 3, 0}, {true, 3, 3}, {true, mostComplaints, mostComplaints}, {true, 5 * mostComplaints, mostComplaints}} {
		var out bytes.Buffer
		log := openJournal(wire.NewWriter(&out), tt.verbose)
		for i := range tt.lines {
			log.Debug("nobody wants to know")
			log.Warn("end session", "process", i, "err", errors.New("it was\ncut off"))
			if i == tt.lines/2 {
				log.finish()
			}
		}
		log.finish()
		var told []string
		for in := wire.NewReader(&out); ; {
			m, err := in.Read()
			if err != nil {
				break
			}
			told = append(told, m.(*wire.Log).Text)
		}
		if len(told) != tt.told {
			t.Fatalf("%+v: told %q", tt, told)
		}
		for i, line := range told {
			if !strings.HasPrefix(line, `level=WARN msg="end session" process=`) || strings.Contains(line, "\n") || strings.Contains(line, "tells no more") != (i == mostComplaints-1) {
				t.Errorf("%+v: line %d: %s", tt, i, line)
			}
		}
	}
}
