package jobs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"gorun/rendezvous/resume"
	"gorun/rendezvous/standing"
	"gorun/rendezvous/wire"
)

const (
	// listTimeout is how long hosts may take to list their jobs.
	listTimeout = 10 * time.Second
	// moveInterval is how often FindInCluster asks again where a job has moved.
	moveInterval = 300 * time.Millisecond
	// asked is how many hosts are asked at a time.
	asked = 16
)

// Entry is a detached job of a cluster.
type Entry struct {
	Host string `json:"host"`
	Record
	addr    string
	members []wire.MemberState // of the cluster, which can be asked for the job
}

// Label returns the job's name for users, wherever its launcher is by now.
func (e Entry) Label() string {
	if e.Name != "" {
		return e.Name
	}
	return fmt.Sprintf("%s/%d", e.Host, e.ID)
}

// number is the label without the host.
func (e Entry) number() string {
	name := e.Label()
	return name[strings.LastIndexByte(name, '/')+1:]
}

// LastNumber returns the greatest number of a job that began on a host, wherever its launcher is by now.
func LastNumber(all []Entry, host string) (last int) {
	for _, e := range all {
		if n, err := strconv.Atoi(e.number()); err == nil && e.Label() == fmt.Sprintf("%s/%d", host, n) {
			last = max(last, n)
		}
	}
	return last
}

// StateText describes the state of the job, and where its launcher is if the job began elsewhere.
func (e Entry) StateText() string {
	if e.Name == "" || e.State == Unattended {
		return e.Record.StateText()
	}
	return e.Record.StateText() + ", on " + e.Host
}

// knowledge ranks what the author of the record can know about the launcher.
func (e Entry) knowledge() int {
	switch {
	case e.State == Unattended:
		return 0
	case e.Abandoned != "":
		return 1
	}
	return 2
}

// latest returns one entry for each job, the one to believe: of its latest launcher, by the host that knows most about
// it. Of two electors, that is the one that heard the launcher last.
func latest(all []Entry) []Entry {
	last := map[string]Entry{}
	for _, e := range all {
		x, known := last[e.Authority]
		order := cmp.Or(cmp.Compare(e.Term, x.Term), cmp.Compare(e.knowledge(), x.knowledge()), e.Silent[e.Machine].Compare(x.Silent[x.Machine]))
		if !known || order > 0 {
			last[e.Authority] = e
		}
	}
	return slices.DeleteFunc(all, func(e Entry) bool {
		x := last[e.Authority]
		return e.Authority != "" && (e.Host != x.Host || e.ID != x.ID)
	})
}

// ListCluster asks all members of a cluster for their jobs and returns them in the order of their starts. Silent are the
// members that do not answer.
func ListCluster(ctx context.Context, client standing.Client, members []wire.MemberState) (all []Entry, silent []string) {
	all, silent = listAll(ctx, client, members)
	return latest(all), silent
}

// reachable is ListCluster without the jobs whose launchers do not answer.
func reachable(ctx context.Context, client standing.Client, members []wire.MemberState) (all []Entry, silent []string) {
	all, silent = listAll(ctx, client, members)
	return latest(slices.DeleteFunc(all, func(e Entry) bool { return e.State == Unattended })), silent
}

func listAll(ctx context.Context, client standing.Client, members []wire.MemberState) (all []Entry, silent []string) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	door := make(chan struct{}, asked)
	for _, m := range members {
		wg.Go(func() {
			door <- struct{}{}
			defer func() { <-door }()
			records, err := recordsOn(ctx, client, m.Addr)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				silent = append(silent, m.Host)
				return
			}
			for _, r := range records {
				all = append(all, Entry{Host: m.Host, Record: r, addr: m.Addr, members: members})
			}
		})
	}
	wg.Wait()
	slices.SortFunc(all, func(a, b Entry) int { return a.Started.Compare(b.Started) })
	slices.Sort(silent)
	return all, silent
}

// recordsOn asks the daemon at addr for the detached jobs of its host.
func recordsOn(ctx context.Context, client standing.Client, addr string) (records []Record, err error) {
	list, err := client.Detached(ctx, addr)
	if err == nil {
		err = json.Unmarshal(list.Records, &records)
	}
	return records, err
}

// NotFoundError is a job that none of the hosts that answer has.
type NotFoundError struct {
	Err    error
	Silent []string // hosts that do not answer
}

func (e *NotFoundError) Error() string {
	if e.Silent == nil {
		return e.Err.Error()
	}
	return fmt.Sprintf("%v; no answer from %s", e.Err, strings.Join(e.Silent, ", "))
}

func (e *NotFoundError) Unwrap() error { return e.Err }

// FindInCluster is FindHere for a cluster, asked at addr. The id is HOST/NUMBER, a number that only one host has, or empty for the
// last job. Its error is a NotFoundError if the cluster answers.
func FindInCluster(ctx context.Context, client standing.Client, addr, id string, running bool) (Target, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	e, err := find(ctx, client, addr, id, running)
	// The host that reports a move knows of another launcher, whose host has not answered.
	for err == nil && e.State == Moved && resume.Pause(ctx, moveInterval) {
		if later, again := find(ctx, client, addr, id, running); again == nil {
			e = later
		}
	}
	return e.target(client), err
}

// find asks the hosts of a cluster once.
func find(ctx context.Context, client standing.Client, addr, id string, running bool) (Entry, error) {
	known, err := client.Members(ctx, addr)
	if err != nil {
		return Entry{}, err
	}
	for i, m := range known.Members {
		if m.Host == known.Host { // its own address may be one without a way from here, as those of pods are behind a forwarded port
			known.Members[i].Addr = addr
		}
	}
	all, silent := reachable(ctx, client, known.Members)
	e, err := choose(all, id, running)
	e.members = known.Members
	if err != nil {
		err = &NotFoundError{err, silent}
	}
	return e, err
}

// choose picks the entry that an id means: of several the latest that runs, and else the latest.
func choose(all []Entry, id string, running bool) (Entry, error) {
	var fits, run []Entry
	for _, e := range all {
		if id != "" && id != e.Label() && id != e.number() {
			continue
		}
		fits = append(fits, e)
		if e.State == Running {
			run = append(run, e)
		}
	}
	other := slices.IndexFunc(fits, func(e Entry) bool { return e.Label() != fits[0].Label() })
	switch {
	case len(fits) == 0 && id == "":
		return Entry{}, errors.New("the cluster has no detached jobs")
	case len(fits) == 0:
		return Entry{}, fmt.Errorf("find job %s: %w", id, ErrNone)
	case id == "" && running && len(run) == 0:
		return Entry{}, ErrIdle
	case id != "" && other >= 0:
		return Entry{}, fmt.Errorf("find job %s: %s and %s are called so", id, fits[0].Label(), fits[other].Label())
	case id != "" && len(run) > 1: // a host that lost its records gave the name once more
		return Entry{}, fmt.Errorf("find job %s: jobs on %s and %s are called so", id, run[0].Host, run[1].Host)
	case len(run) > 0:
		return run[len(run)-1], nil
	}
	return fits[len(fits)-1], nil
}

// target returns the job as one of this machine would be.
func (e Entry) target(client standing.Client) Target {
	t := Target{Record: e.Record, Label: Clean(e.Label())}
	t.Dial = func(ctx context.Context) (net.Conn, error) { return e.reach(ctx, client, wire.Reach{}) }
	t.Read = func(ctx context.Context, lines int, follow bool) (io.ReadCloser, error) {
		return e.reach(ctx, client, wire.Reach{Output: true, Lines: lines, Follow: follow})
	}
	if e.Authority == "" {
		return t
	}
	t.next = func(ctx context.Context) (Target, bool) { return e.next(ctx, client) }
	t.runs = func(ctx context.Context) bool { return e.runs(ctx, client) }
	return t
}

// reach connects to the job's launcher or its output.
func (e Entry) reach(ctx context.Context, client standing.Client, what wire.Reach) (net.Conn, error) {
	what.Job = e.ID
	conn, err := client.Reach(ctx, e.addr, what)
	if err != nil {
		return nil, fmt.Errorf("reach job %s: %w", e.Label(), err)
	}
	return conn, nil
}

// next is Target.next.
func (e Entry) next(ctx context.Context, client standing.Client) (Target, bool) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	all, _ := reachable(ctx, client, e.members)
	for _, x := range all {
		if x.Authority == e.Authority && (x.Term > e.Term || x.Term == e.Term && x.State == Ended) {
			return x.target(client), true
		}
	}
	return Target{}, false
}

// runs is Target.runs.
func (e Entry) runs(ctx context.Context, client standing.Client) bool {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	records, err := recordsOn(ctx, client, e.addr)
	return err == nil && slices.ContainsFunc(records, func(x Record) bool {
		return x.Authority == e.Authority && x.Term == e.Term && x.State == Running
	})
}
