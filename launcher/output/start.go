package output

import "fmt"

// Start is the progress of a start.
type Start struct {
	Hosts, Reached, Ready, Started, Ranks int
	Waits                                 string // the hosts that the start waits for, "" if none
}

// String returns the text of the status line, "" when there is nothing left to wait for.
func (s Start) String() string {
	waits := ""
	if s.Waits != "" {
		waits = ", waiting for " + s.Waits
	}
	switch {
	case s.Ready < s.Hosts:
		return fmt.Sprintf("gorun: %d/%d hosts reached, %d/%d daemons ready%s", s.Reached, s.Hosts, s.Ready, s.Hosts, waits)
	case s.Started < s.Ranks:
		return fmt.Sprintf("gorun: %d/%d daemons ready, %d/%d ranks started%s", s.Ready, s.Hosts, s.Started, s.Ranks, waits)
	}
	return ""
}
