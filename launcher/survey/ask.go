// Package survey asks hosts about themselves before there is a job: what they are, what makes jobs fail or slow there, and
// how fast they reach each other. On each host it starts a gorun by a launcher.Dialer, reads what that prints, and ends it.
//
// It does not print and keeps nothing: gorun topo and gorun doctor show what it returns.
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

	"gorun/launcher"
	"gorun/topology"
	"gorun/topology/picture"
	"gorun/topology/probe"
)

// Hosts asks every host at once. Its error names all hosts that failed.
func Hosts(ctx context.Context, d launcher.Dialer, names []string, patience time.Duration) ([]topology.Host, error) {
	timeout := fmt.Errorf("no answer within %v", patience)
	ctx, cancel := context.WithTimeoutCause(ctx, patience, timeout)
	defer cancel()
	answers, errs := make([]answer, len(names)), make([]*launcher.HostError, len(names))
	var asking sync.WaitGroup
	for i, name := range names {
		asking.Go(func() {
			var err error
			if answers[i], err = ask(ctx, d, name); err == nil {
				answers[i].Name = name
			} else if !errors.As(err, &errs[i]) {
				errs[i] = &launcher.HostError{Host: name, Step: "probe", Err: err, Code: launcher.ExitTransport}
			}
		})
	}
	asking.Wait()
	if cause := context.Cause(ctx); cause != nil && cause != timeout {
		return nil, cause // Ctrl-C is no fault of the hosts
	}
	errs = slices.DeleteFunc(errs, func(e *launcher.HostError) bool { return e == nil })
	switch len(errs) {
	case 0:
		return reachedAt(answers), nil
	case 1:
		return nil, errs[0]
	}
	return nil, &launcher.HostErrors{Hosts: len(names), Failed: errs}
}

// reachedAt returns the hosts with the NICs that a job's data would go over, because at their addresses its daemons would
// be reached; the one of this machine is on the way to another host.
func reachedAt(answers []answer) []topology.Host {
	hosts := make([]topology.Host, len(answers))
	for i, a := range answers {
		other := slices.IndexFunc(answers, func(other answer) bool { return other.at.IsValid() })
		if a.here && other >= 0 {
			a.at = probe.SourceToward(answers[other].at.String())
		}
		hosts[i] = a.Host
		hosts[i].Data = ""
		if addrs := topology.Addresses(a.Host, nil, a.at); a.at.IsValid() && len(addrs) > 0 {
			hosts[i].Data = a.NICAt(addrs[0])
		}
	}
	return hosts
}

// mostFacts bounds what a host may say of itself, in bytes.
const mostFacts = 4 << 20

// answer is what a host says of itself, and the address at which it was asked, if that is not this machine.
type answer struct {
	topology.Host
	at   netip.Addr
	here bool
}

// ask runs gorun topo --facts on the host.
func ask(ctx context.Context, d launcher.Dialer, host string) (found answer, err error) {
	_, _, err = converse(ctx, d, host, func(text []byte, d *launcher.Daemon) (err error) {
		if found.Host, err = picture.ParseHost(text); err != nil {
			return err
		}
		found.at, _ = netip.ParseAddr(d.LocalIP)
		found.here = !d.Remote
		return nil
	})
	return found, err
}

// reason picks from what a gorun said on standard error why it failed.
func reason(said string) string {
	var line string
	for line = range strings.Lines(strings.TrimSpace(said)) {
		if text, ok := strings.CutPrefix(line, "gorun: error: "); ok {
			return strings.TrimSpace(text)
		}
	}
	return line
}

// converse parses what a host says, and tells when it did.
func converse(ctx context.Context, d launcher.Dialer, host string, parse func(text []byte, d *launcher.Daemon) error) (asked, came time.Time, err error) {
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
