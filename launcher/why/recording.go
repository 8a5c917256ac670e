package why

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"gorun/rendezvous/wire"
)

// Recording is what the flight recorders of a job's hosts had at some moment, and what was found out about its ranks
// then. Times are in microseconds since 1970, by the launcher's clock; 0 is not yet.
type Recording struct {
	Head  Head
	Found []Finding
	Ops   []Op // of each host the oldest first
	Links []LinkEvent
	Sums  []Sum
}

// Head is the first line of a recording.
type Head struct {
	Version int      `json:"version"` // of the format: 1
	Reason  string   `json:"reason"`  // why it was made, in words
	Time    int64    `json:"time_us"`
	Hosts   []string `json:"hosts"`
	Ranks   int      `json:"ranks"`
	Error   string   `json:"error,omitempty"` // of a job that failed
}

// Op is an operation as one host saw it.
type Op struct {
	Host string `json:"host"`
	wire.FlightOp
	LastHost string `json:"last_host,omitempty"` // the last other host that was ready
}

// LinkEvent is what happened to a link between two hosts.
type LinkEvent struct {
	Host string `json:"host"`
	Peer string `json:"peer"`
	wire.LinkEvent
}

// Sum is what the ranks of a host add up in shared memory, without their daemon.
type Sum struct {
	Host string `json:"host"`
	wire.FlightSum
}

// recordingVersion is the format that this program writes.
const recordingVersion = 1

// line is a line of a recording. One of its fields is set.
type line struct {
	Head  *Head      `json:"recording,omitempty"`
	Found *Finding   `json:"rank,omitempty"`
	Op    *Op        `json:"operation,omitempty"`
	Link  *LinkEvent `json:"link,omitempty"`
	Sum   *Sum       `json:"sum,omitempty"`
}

// Write writes a recording, a line of JSON for each thing.
func (r *Recording) Write(to io.Writer) error {
	w := bufio.NewWriter(to)
	out := json.NewEncoder(w)
	out.SetEscapeHTML(false)
	r.Head.Version = recordingVersion
	err := out.Encode(line{Head: &r.Head})
	for i := range r.Found {
		err = errors.Join(err, out.Encode(line{Found: &r.Found[i]}))
	}
	for i := range r.Ops {
		err = errors.Join(err, out.Encode(line{Op: &r.Ops[i]}))
	}
	for i := range r.Links {
		err = errors.Join(err, out.Encode(line{Link: &r.Links[i]}))
	}
	for i := range r.Sums {
		err = errors.Join(err, out.Encode(line{Sum: &r.Sums[i]}))
	}
	if err = errors.Join(err, w.Flush()); err != nil {
		return fmt.Errorf("write recording: %w", err)
	}
	return nil
}

// Read reads a recording. It ignores lines of a kind that it does not know.
func Read(from io.Reader) (*Recording, error) {
	r := &Recording{}
	in := json.NewDecoder(from)
	for n := 1; ; n++ {
		var l line
		if err := in.Decode(&l); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("read recording, line %d: %w", n, err)
		}
		switch {
		case l.Head != nil:
			r.Head = *l.Head
		case l.Found != nil:
			r.Found = append(r.Found, *l.Found)
		case l.Op != nil:
			r.Ops = append(r.Ops, *l.Op)
		case l.Link != nil:
			r.Links = append(r.Links, *l.Link)
		case l.Sum != nil:
			r.Sums = append(r.Sums, *l.Sum)
		}
	}
	switch v := r.Head.Version; {
	case v == 0:
		return nil, errors.New("read recording: its first line is not that of a recording")
	case v > recordingVersion:
		return nil, fmt.Errorf("read recording: its format is %d, this gorun reads %d", v, recordingVersion)
	}
	return r, nil
}
