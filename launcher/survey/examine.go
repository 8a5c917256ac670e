package survey

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
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
	d := doing("doctor", "--facts")
	answers, found, errs := make([]doctor.Answer, len(names)), make([]answer, len(names)), make([]error, len(names))
	who := make([]talk.Identity, len(names))
	var asking sync.WaitGroup
	for i, name := range names {
		asking.Go(func() { answers[i], found[i], who[i], errs[i] = askFacts(ctx, d, name) })
	}
	asking.Wait()
	if cause := context.Cause(ctx); errors.Is(cause, failure.ErrStopped) {
		return nil, cause // Ctrl-C is not the hosts' fault
	}
	toward(found)
	var findings []doctor.Finding
	var well []doctor.Answer
	for i, name := range names {
		if errs[i] != nil {
			findings = append(findings, unreachable(name, errs[i]))
			continue
		}
		answers[i].Facts.Host.Name, answers[i].At = name, found[i].at
		for k := range i {
			if errs[k] == nil && who[i].Same(answers[i].Facts.Host.Identity, who[k], answers[k].Facts.Host.Identity) {
				findings = append(findings, doctor.Finding{Host: name, Check: "machine", Status: doctor.Fail,
					Text: "the same machine as " + names[k] + ", under two names", Fix: "name it once, with the slots of both"})
				break
			}
		}
		findings = append(findings, doctor.Judge(answers[i].Facts)...)
		well = append(well, answers[i])
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

// askFacts runs gorun doctor --facts on the host.
func askFacts(ctx context.Context, d talk.Dialer, host string) (a doctor.Answer, found answer, who talk.Identity, err error) {
	a.Asked, a.Came, err = converse(ctx, d, host, func(text []byte, d *talk.Daemon) error {
		who = d.Identity
		found.at, _ = netip.ParseAddr(d.LocalIP)
		found.here = !d.Remote
		return json.Unmarshal(text, &a.Facts)
	})
	return a, found, who, err
}
