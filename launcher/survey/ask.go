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
	"time"

	"gorun/launcher/failure"
	"gorun/launcher/talk"
	"gorun/topology"
	"gorun/topology/picture"
	"gorun/topology/probe"
)

// Hosts asks every host at once. Its error names all hosts that failed.
func Hosts(ctx context.Context, d talk.Dialer, names []string, patience time.Duration) ([]topology.Host, error) {
	hosts := make([]topology.Host, len(names))
	answers, err := Each(ctx, d, names, patience, func(i int, text []byte) (err error) {
		hosts[i], err = picture.ParseHost(text)
		hosts[i].Name = names[i]
		return err
	})
	if err != nil {
		return nil, err
	}
	var errs []*failure.HostError
	for i, a := range answers {
		var known *failure.HostError
		if a.Err != nil && !errors.As(a.Err, &known) {
			known = &failure.HostError{Host: names[i], Step: "probe", Err: a.Err, Code: failure.ExitTransport}
		}
		if known != nil {
			errs = append(errs, known)
		}
	}
	if err := failure.OfHosts(len(names), errs); err != nil {
		return nil, err
	}
	reachedAt(hosts, answers)
	return hosts, nil
}

// reachedAt gives hosts the NIC that a job's data would use.
func reachedAt(hosts []topology.Host, answers []Answer) {
	toward(answers)
	for i, a := range answers {
		hosts[i].Data = ""
		if addrs := topology.Addresses(hosts[i], nil, a.at); a.at.IsValid() && len(addrs) > 0 {
			hosts[i].Data = hosts[i].NICAt(addrs[0])
		}
	}
}

// toward gives this machine the address on the route to another host, where a job's data would find it: others are found
// where the launcher reached them.
func toward(answers []Answer) {
	other := slices.IndexFunc(answers, func(other Answer) bool { return other.at.IsValid() })
	for i := range answers {
		if answers[i].here && other >= 0 {
			answers[i].at = probe.SourceToward(answers[other].at.String())
		}
	}
}

// mostFacts bounds a host's description of itself, in bytes.
const mostFacts = 4 << 20

// converse parses the output of a host.
func converse(ctx context.Context, d talk.Dialer, host string, parse func(text []byte) error) (a Answer) {
	daemon, err := d.Dial(ctx, host)
	if err != nil {
		return Answer{Err: err}
	}
	defer context.AfterFunc(ctx, func() { daemon.Close() })()
	daemon.In.Close() // it reads nothing
	a.at, _ = netip.ParseAddr(daemon.LocalIP)
	a.here, a.who, a.asked = !daemon.Remote, daemon.Identity, time.Now()
	text, err := io.ReadAll(io.LimitReader(daemon.Out, mostFacts))
	a.came = time.Now()
	if len(text) == mostFacts {
		err = fmt.Errorf("it answered with more than %d bytes", mostFacts)
		daemon.Close() // or it would wait for a reader
	}
	said, ended := daemon.Wait()
	daemon.Close()
	if a.Err = context.Cause(ctx); a.Err != nil {
		return a
	}
	if a.Err = cmp.Or(err, parse(text)); a.Err != nil && (said != "" || ended != nil) {
		a.Err = errors.New(cmp.Or(failure.LastLine(said), fmt.Sprint(ended)))
	}
	return a
}
