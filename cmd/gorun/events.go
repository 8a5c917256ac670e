package main

import (
	"io"
	"math"
	"time"

	"gorun/launcher"
	"gorun/launcher/output"
	"gorun/launcher/plan"
	"gorun/topology"
)

// The events of --json beside output and note. Their names and fields stay as they are; docs/reference/events.md lists
// them, with what the tags jsonschema say.
type (
	jobEvent struct {
		Event string   `json:"event"` // "job"
		Ranks int      `json:"ranks" jsonschema:"the number of ranks"`
		Hosts []string `json:"hosts" jsonschema:"names, in the order of the list"`
	}
	startedEvent struct {
		Event string `json:"event"` // "started"
		Rank  int    `json:"rank"`
		Host  string `json:"host"`
		PID   int    `json:"pid"`
	}
	exitedEvent struct {
		Event  string `json:"event"` // "exited"
		Rank   int    `json:"rank"`
		Host   string `json:"host"`
		Code   int    `json:"code" jsonschema:"exit status; 128+n for signal n"`
		Signal int    `json:"signal,omitempty" jsonschema:"the signal that killed the rank, if one did"`
	}
	hostEvent struct {
		Event string    `json:"event"` // "host"
		Host  string    `json:"host"`
		To    string    `json:"to,omitempty" jsonschema:"the other host that does not hear it, or hears it again, if gorun hears both"`
		State string    `json:"state" jsonschema:"silent, back, or lost: an elastic job continues without it"`
		Since time.Time `json:"since,omitzero" jsonschema:"when a host that is silent or back was last heard (UTC)"`
	}
	edgeEvent struct {
		Event  string  `json:"event"` // "edge"
		From   string  `json:"from"`
		To     string  `json:"to"`
		Speed  float64 `json:"speed_mbit" jsonschema:"-1 if it is unknown"`
		Source string  `json:"speed_source" jsonschema:"job, or unknown"`
		RTT    float64 `json:"rtt_us" jsonschema:"round-trip time; -1 if it is unknown"`
	}
	endEvent struct {
		Event string `json:"event"` // "end"
		Code  int    `json:"code" jsonschema:"exit status of gorun"`
		Error string `json:"error,omitempty" jsonschema:"why, if the code is not 0"`
	}
)

// announce is the first event.
func announce(mux *output.Mux, p plan.Placement) {
	e := jobEvent{Event: "job", Ranks: len(p.Ranks)}
	for _, h := range p.Hosts {
		e.Hosts = append(e.Hosts, h.Name)
	}
	mux.Event(e)
}

// watchRanks makes events of what happens to ranks.
func watchRanks(mux *output.Mux) func(launcher.RankEvent) {
	return func(e launcher.RankEvent) {
		switch {
		case e.Ended:
			mux.Event(exitedEvent{"exited", e.Rank, e.Host, e.Code, e.Signal})
		case e.Enters:
			mux.SetSpare(e.Rank, false)
		default:
			if e.Spare {
				mux.SetSpare(e.Rank, true)
			}
			mux.Event(startedEvent{"started", e.Rank, e.Host, e.PID})
		}
	}
}

// watchHosts makes events of what is heard of hosts.
func watchHosts(mux *output.Mux) func(launcher.HostEvent) {
	return func(e launcher.HostEvent) {
		mux.Event(hostEvent{"host", e.Host, e.To, string(e.State), e.Since.UTC()})
	}
}

// edgeEvents makes events of what a job has measured between its hosts.
func edgeEvents(mux *output.Mux, hosts []topology.Host, edges []topology.Edge) {
	for _, e := range edges {
		event := edgeEvent{Event: "edge", From: hosts[e.From].Name, To: hosts[e.To].Name, Speed: -1, Source: "unknown", RTT: -1}
		if e.Bandwidth > 0 {
			event.Speed, event.Source = math.Round(e.Bandwidth*8/1e5)/10, "job"
		}
		if e.RTT > 0 {
			event.RTT = math.Round(e.RTT*1e7) / 10
		}
		mux.Event(event)
	}
}

// conclude is the last event.
func conclude(mux *output.Mux, err error) {
	e := endEvent{Event: "end", Code: explain(io.Discard, err)}
	if err != nil {
		e.Error = err.Error()
	}
	mux.Event(e)
}
