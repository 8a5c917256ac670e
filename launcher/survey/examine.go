package survey

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"gorun/launcher/failure"
	"gorun/launcher/talk"
	"gorun/topology/doctor"
)

// Examine asks every host at once and judges the answers. A host that does not answer is a finding, too.
//
// Hosts that answer then examine the paths between them, over the NICs that the user's list selects, by what doing
// returns.
func Examine(ctx context.Context, names, nics []string, patience time.Duration, doing func(args ...string) talk.Dialer) ([]doctor.Finding, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("no answer within %v", patience))
	defer cancel()
	facts := make([]doctor.Facts, len(names))
	answers, err := Each(ctx, doing("doctor", "--facts"), names, patience, func(i int, text []byte) error { return json.Unmarshal(text, &facts[i]) })
	if err != nil {
		return nil, err
	}
	toward(answers)
	var findings []doctor.Finding
	var well []doctor.Answer
	for i, name := range names {
		a := answers[i]
		if a.Err != nil {
			findings = append(findings, unreachable(name, a.Err))
			continue
		}
		facts[i].Host.Name = name
		for k := range i {
			if answers[k].Err == nil && a.who.Same(facts[i].Host.Identity, answers[k].who, facts[k].Host.Identity) {
				findings = append(findings, doctor.Finding{Host: name, Check: "machine", Status: doctor.Fail,
					Text: "the same machine as " + names[k] + ", under two names", Fix: "name it once, with the slots of both"})
				break
			}
		}
		findings = append(findings, doctor.Judge(facts[i])...)
		well = append(well, doctor.Answer{Facts: facts[i], At: a.at, Asked: a.asked, Came: a.came})
	}
	findings = append(findings, doctor.Compare(well, nics)...)
	paths := doctor.Paths(well, nics)
	findings = append(findings, doctor.JudgePaths(paths, tryPaths(ctx, doing("topo", "--agent"), well, nics, paths))...)
	if cause := context.Cause(ctx); errors.Is(cause, failure.ErrStopped) {
		return nil, cause
	}
	slices.SortStableFunc(findings, func(a, b doctor.Finding) int {
		return slices.Index(names, a.Host) - slices.Index(names, b.Host)
	})
	return findings, nil
}

func unreachable(name string, err error) doctor.Finding {
	f := doctor.Finding{Host: name, Check: "reach", Status: doctor.Fail, Text: err.Error()}
	var failed *failure.HostError
	if errors.As(err, &failed) {
		f.Text, f.Fix = fmt.Sprintf("%s: %v", failed.Stage(), failed.Err), failed.Hint
	}
	f.Fix = cmp.Or(f.Fix, "ssh -v "+name+" true")
	return f
}
