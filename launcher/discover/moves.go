package discover

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"gorun/launcher/output"
)

// Moves is a shell command that announces moves of virtual machines as long as it runs. Each line is a host, a word, and
// free text. The word is "starts" or "ends" of a move; "leaves" has the job's ranks leave the host, and "returns" lets the job
// use it again. Before the text, a line that ends a move may set labels of the host's new location, as in a topology file:
//
//	host1 starts vMotion to esx-07
//	host1 ends esxi=esx-07 rack="row 2" by=vCenter moved from esx-03
//	host2 leaves esx-04 enters maintenance mode
type Moves struct {
	Command string
	Env     []string
}

// Move is one announcement.
type Move struct {
	Host   string
	What   string // starts, ends, leaves or returns
	Text   string
	Labels map[string]string // esxi, rack, zone; may be nil
	By     string            // the source of the labels
}

const (
	maxMoveLine = 4 << 10
	// A command that ends is restarted after a while: announcements help, but their lack must not end a job.
	movesRetryMin = time.Second
	movesRetryMax = 30 * time.Second
	movesHealthy  = time.Minute // a command that ran so long was working
)

// Watch runs the command until ctx ends, and delivers its announcements. When it returns, the command has ended.
func (m Moves) Watch(ctx context.Context, announced func(Move), note func(format string, args ...any)) {
	for delay := movesRetryMin; ; delay = min(2*delay, movesRetryMax) {
		began := time.Now()
		err := m.run(ctx, announced, note)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > movesHealthy {
			delay = movesRetryMin
		}
		note("gorun: %v; it runs again in %v", err, delay)
		select {
		case <-ctx.Done():
			return
		case <-time.After(delay):
		}
	}
}

// run runs the command once. Its end is always an error.
func (m Moves) run(ctx context.Context, announced func(Move), note func(format string, args ...any)) error {
	lines := output.NewSplitter(maxMoveLine)
	rest := false // of a line that is too long
	said, err := shell(ctx, m.Command, m.Env, lines.Writer(func(line []byte, end output.End) {
		move, err := parseMove(string(line))
		switch {
		case rest, len(bytes.TrimSpace(line)) == 0:
		case err != nil:
			note("gorun: read what %s announces: %v", m.Command, err)
		default:
			announced(move)
		}
		rest = end == output.Part
	}))
	err = saying(cmp.Or(err, errors.New("it ended")), said)
	return fmt.Errorf("run %s for announcements of moves: %w", m.Command, err)
}

// parseMove parses a line.
func parseMove(line string) (Move, error) {
	fields := strings.Fields(line)
	if len(fields) < 2 || !slices.Contains(words, fields[1]) {
		return Move{}, fmt.Errorf("%.80q is not: HOST %s TEXT", line, strings.Join(words, "|"))
	}
	m := Move{Host: fields[0], What: fields[1]}
	_, rest, _ := strings.Cut(line, fields[0])
	_, rest, _ = strings.Cut(rest, fields[1])
	for rest = strings.TrimSpace(rest); m.What == "ends"; rest = strings.TrimSpace(rest) {
		key, text, found := strings.Cut(rest, "=")
		if !found || !slices.Contains(labels, key) {
			break
		}
		value, _, _ := strings.Cut(text, " ")
		after := text[len(value):]
		if quoted, err := strconv.QuotedPrefix(text); err == nil {
			value, _ = strconv.Unquote(quoted) // QuotedPrefix has checked it
			after = text[len(quoted):]
		}
		if value == "" || len(value) > maxLabel || strings.ContainsFunc(value, func(r rune) bool { return !unicode.IsPrint(r) }) {
			return Move{}, fmt.Errorf("%.80q: %s is not a name of 1 to %d characters", line, key, maxLabel)
		}
		if rest = after; key == "by" {
			m.By = value
			continue
		}
		if m.Labels == nil {
			m.Labels = map[string]string{}
		}
		m.Labels[key] = value
	}
	m.Text = strings.Join(strings.Fields(rest), " ")
	return m, nil
}

// words are what a line may announce.
var words = []string{"starts", "ends", "leaves", "returns"}

// labels are the keys that the end of a move may set, as in a topology file, and the limit of their values.
var labels = []string{"esxi", "rack", "zone", "by"}

const maxLabel = 253
