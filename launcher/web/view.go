package web

import (
	"time"

	"gorun/launcher/jobs"
	"gorun/launcher/why"
	"gorun/topology"
)

// View is what a page shows, as GET /api/state or GET /api/cluster returns it. Counters grow from the start of the job:
// who wants rates subtracts an earlier view.
type View struct {
	Now time.Time `json:"now"`
	*jobs.State
	Cluster any    `json:"cluster,omitempty"`
	Error   string `json:"error,omitempty"` // why nothing newer is known
}

// viewOf returns the view of a job.
func viewOf(s jobs.State) View {
	for i := range s.Hosts { // the page does not show them, and there may be a thousand hosts
		s.Hosts[i].Each, s.Hosts[i].Operations = nil, nil
	}
	return View{State: &s}
}

// Answer is what a job waits for, as POST /api/why returns it.
type Answer struct {
	Verdict  string      `json:"verdict"`
	Evidence []string    `json:"evidence"`
	Stacks   []StackView `json:"stacks"`
}

// StackView is a stack that ranks have in common.
type StackView struct {
	Ranks  string   `json:"ranks"`
	Frames []string `json:"frames"` // the innermost first
}

func answerOf(all []why.Finding) Answer {
	a := Answer{Evidence: []string{}, Stacks: []StackView{}}
	verdict, evidence := why.Explain(all)
	a.Verdict = jobs.Clean(verdict)
	for _, line := range evidence {
		a.Evidence = append(a.Evidence, jobs.Clean(line))
	}
	for _, s := range why.Merge(all) {
		stack := StackView{Ranks: topology.Ranges(s.Ranks)}
		for _, frame := range s.Frames {
			stack.Frames = append(stack.Frames, jobs.Clean(frame.String()))
		}
		a.Stacks = append(a.Stacks, stack)
	}
	return a
}
