package versus

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"syscall"
	"time"
)

// patience is how long a program may take to end when it was told to.
const patience = 10 * time.Second

// Row is what a program takes for a size: the median over the rounds, and the extremes, in microseconds.
type Row struct {
	Size int     `json:"size"`
	P50  float64 `json:"p50_us"`
	Low  float64 `json:"low_us"`
	High float64 `json:"high_us"`
}

// Column is a program with its rows.
type Column struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Rows    []Row  `json:"rows"`
}

// Report is the outcome.
type Report struct {
	Operation string    `json:"operation"`
	Ranks     int       `json:"ranks"`
	Hosts     int       `json:"hosts"`
	Rounds    int       `json:"rounds"`
	Columns   []Column  `json:"programs"` // gorun first
	Missing   []Missing `json:"missing"`
}

// Measure runs all programs in turns. One of the peers that fails is left out from there on, and the report says why;
// if gorun fails, that is the error. progress is told what runs.
func Measure(ctx context.Context, s Setting, peers []Peer, missing []Missing, rounds int, progress func(string)) (*Report, error) {
	r := &Report{Operation: s.Operation, Ranks: s.Ranks, Hosts: max(len(s.Hosts), 1), Rounds: rounds, Missing: missing}
	times := map[string]map[int][]float64{}
	failed := map[string]error{}
	for round := range rounds {
		first := round % len(peers) // each is the first now and then
		for _, p := range slices.Concat(peers[first:], peers[:first]) {
			if failed[p.Name] != nil {
				continue
			}
			progress(fmt.Sprintf("round %d of %d: %s", round+1, rounds, p.Name))
			got, err := once(ctx, p)
			switch {
			case ctx.Err() != nil:
				return nil, context.Cause(ctx)
			case err != nil && p.Name == peers[0].Name:
				return nil, fmt.Errorf("measure %s: %w", p.Name, err)
			case err != nil:
				failed[p.Name] = err
				r.Missing = append(r.Missing, Missing{p.Name, err.Error()})
				continue
			}
			if times[p.Name] == nil {
				times[p.Name] = map[int][]float64{}
			}
			for size, t := range got {
				times[p.Name][size] = append(times[p.Name][size], t)
			}
		}
	}
	for _, p := range peers {
		if failed[p.Name] != nil {
			continue
		}
		c := Column{Name: p.Name, Version: p.Version}
		for _, size := range s.Sizes {
			if t := times[p.Name][size]; len(t) > 0 {
				slices.Sort(t)
				c.Rows = append(c.Rows, Row{size, (t[(len(t)-1)/2] + t[len(t)/2]) / 2, t[0], t[len(t)-1]})
			}
		}
		r.Columns = append(r.Columns, c)
	}
	return r, nil
}

// once runs a program and returns its medians by size.
func once(ctx context.Context, p Peer) (map[int]float64, error) {
	cmd := exec.CommandContext(ctx, p.Command[0], p.Command[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = patience
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	times, why := read(stdout.Bytes())
	switch {
	case why != nil && err != nil && !errors.Is(why, errRefused):
		return nil, fmt.Errorf("%w: %s", err, lastLine(slices.Concat(stdout.Bytes(), stderr.Bytes())))
	case why != nil:
		return nil, why
	}
	return times, err
}

// errRefused is that a program says why it does not measure.
var errRefused = errors.New("not there")

// read takes the document out of what a program printed.
func read(out []byte) (map[int]float64, error) {
	var doc struct {
		Rows []struct {
			Size  int     `json:"size"`
			P50   float64 `json:"p50_us"`
			Wrong int64   `json:"wrong"`
		} `json:"rows"`
		Why string `json:"why"` // instead of rows
	}
	for line := range bytes.Lines(out) {
		line = bytes.TrimPrefix(line, []byte("[0]<stdout>:")) // horovodrun's
		if !bytes.HasPrefix(line, []byte("{")) {
			continue
		}
		if err := json.Unmarshal(line, &doc); err != nil {
			return nil, fmt.Errorf("read its report: %w", err)
		}
	}
	if doc.Why != "" {
		return nil, fmt.Errorf("%w: %s", errRefused, doc.Why)
	}
	if len(doc.Rows) == 0 {
		return nil, errors.New("it printed no report")
	}
	times := map[int]float64{}
	for _, r := range doc.Rows {
		if r.Wrong != 0 {
			return nil, fmt.Errorf("%d elements of %d bytes are wrong", r.Wrong, r.Size)
		}
		times[r.Size] = r.P50
	}
	return times, nil
}

// Print writes the report as a table, or as one JSON document.
func (r *Report) Print(w io.Writer, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(w).Encode(r)
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "# %s, float32; ranks: %d, hosts: %d; median times of %d rounds in turns, in us\n", r.Operation, r.Ranks, r.Hosts, r.Rounds)
	fmt.Fprintf(&b, "# a ratio is the peer's time by gorun's: above 1 gorun is faster\n")
	for _, c := range r.Columns {
		fmt.Fprintf(&b, "# %s: %s\n", c.Name, c.Version)
	}
	for _, m := range r.Missing {
		fmt.Fprintf(&b, "# not measured: %s: %s\n", m.Name, m.Why)
	}
	fmt.Fprintf(&b, "#%11s", "size")
	for i, c := range r.Columns {
		fmt.Fprintf(&b, " %12s", c.Name)
		if i > 0 {
			fmt.Fprintf(&b, " %7s", "ratio")
		}
	}
	b.WriteByte('\n')
	for i, own := range r.Columns[0].Rows {
		fmt.Fprintf(&b, "%12d", own.Size)
		for k, c := range r.Columns {
			row := c.row(own.Size, i)
			fmt.Fprintf(&b, " %12.2f", row.P50)
			if k > 0 {
				fmt.Fprintf(&b, " %7.2f", row.P50/own.P50)
			}
		}
		b.WriteByte('\n')
	}
	_, err := w.Write(b.Bytes())
	return err
}

// row returns the row of a size, which usually is the i-th.
func (c *Column) row(size, i int) Row {
	if i < len(c.Rows) && c.Rows[i].Size == size {
		return c.Rows[i]
	}
	for _, r := range c.Rows {
		if r.Size == size {
			return r
		}
	}
	return Row{Size: size}
}
