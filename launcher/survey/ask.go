// Package survey examines hosts before there is a job: their hardware, what makes jobs fail or slow there, and how fast
// they reach each other. On each host it starts a gorun through a talk.Dialer, reads its output, and ends it.
//
// It prints and stores nothing: gorun topo and gorun doctor show the results.
package survey

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"gorun/launcher/failure"
	"gorun/launcher/talk"
	"gorun/topology"
	"gorun/topology/picture"
	"gorun/topology/probe"
)

// Hosts asks every host at once. Its error names all hosts that failed.
func Hosts(ctx context.Context, d talk.Dialer, names []string, patience time.Duration) ([]topology.Host, error) {
	timeout := fmt.Errorf("no answer within %v", patience)
	ctx, cancel := context.WithTimeoutCause(ctx, patience, timeout)
	defer cancel()
	answers, errs := make([]answer, len(names)), make([]*failure.HostError, len(names))
	var asking sync.WaitGroup
	for i, name := range names {
		asking.Go(func() {
			var err error
			if answers[i], err = ask(ctx, d, name); err == nil {
				answers[i].Name = name
			} else if !errors.As(err, &errs[i]) {
				errs[i] = &failure.HostError{Host: name, Step: "probe", Err: err, Code: failure.ExitTransport}
			}
		})
	}
	asking.Wait()
	if cause := context.Cause(ctx); cause != nil && cause != timeout {
		return nil, cause // Ctrl-C is not the hosts' fault
	}
	errs = slices.DeleteFunc(errs, func(e *failure.HostError) bool { return e == nil })
	switch len(errs) {
	case 0:
		return reachedAt(answers), nil
	case 1:
		return nil, errs[0]
	}
	return nil, &failure.HostErrors{Hosts: len(names), Failed: errs}
}

// reachedAt returns the hosts with the NIC that a job's data would use.
func reachedAt(answers []answer) []topology.Host {
	toward(answers)
	hosts := make([]topology.Host, len(answers))
	for i, a := range answers {
		hosts[i] = a.Host
		hosts[i].Data = ""
		if addrs := topology.Addresses(a.Host, nil, a.at); a.at.IsValid() && len(addrs) > 0 {
			hosts[i].Data = a.NICAt(addrs[0])
		}
	}
	return hosts
}

// toward gives this machine the address on the route to another host, where a job's data would find it: others are found
// where the launcher reached them.
func toward(answers []answer) {
	other := slices.IndexFunc(answers, func(other answer) bool { return other.at.IsValid() })
	for i := range answers {
		if answers[i].here && other >= 0 {
			answers[i].at = probe.SourceToward(answers[other].at.String())
		}
	}
}

// mostFacts bounds a host's description of itself, in bytes.
const mostFacts = 4 << 20

// answer is a host's description of itself, and the address at which it was reached, if it is not this machine.
type answer struct {
	topology.Host
	at   netip.Addr
	here bool
}

// ask runs gorun topo --facts on the host.
func ask(ctx context.Context, d talk.Dialer, host string) (found answer, err error) {
	_, _, err = converse(ctx, d, host, func(text []byte, d *talk.Daemon) (err error) {
		if found.Host, err = picture.ParseHost(text); err != nil {
			return err
		}
		found.at, _ = netip.ParseAddr(d.LocalIP)
		found.here = !d.Remote
		return nil
	})
	return found, err
}

// reason selects from the standard error of a gorun why it failed.
func reason(said string) string {
	var line string
	for line = range strings.Lines(strings.TrimSpace(said)) {
		if text, ok := strings.CutPrefix(line, "gorun: error: "); ok {
			return strings.TrimSpace(text)
		}
	}
	return line
}

// converse parses the output of a host, and reports that it has answered.
func converse(ctx context.Context, d talk.Dialer, host string, parse func(text []byte, d *talk.Daemon) error) (asked, came time.Time, err error) {
	daemon, err := d.Dial(ctx, host)
	if err != nil {
		return asked, came, err
	}
	defer context.AfterFunc(ctx, func() { daemon.Close() })()
	daemon.In.Close() // it reads nothing
	asked = time.Now()
	text, err := io.ReadAll(io.LimitReader(daemon.Out, mostFacts))
	came = time.Now()
	if len(text) == mostFacts {
		err = fmt.Errorf("it answered with more than %d bytes", mostFacts)
		daemon.Close() // or it would wait for a reader
	}
	said, ended := daemon.Wait()
	daemon.Close()
	if cause := context.Cause(ctx); cause != nil {
		return asked, came, cause
	}
	if err = cmp.Or(err, parse(text, daemon)); err != nil && (said != "" || ended != nil) {
		err = errors.New(cmp.Or(reason(said), fmt.Sprint(ended)))
	}
	return asked, came, err
}
