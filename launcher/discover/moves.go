package discover

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
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
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", m.Command)
	cmd.Env = m.Env
	cmd.WaitDelay = held
	stderr := limited{max: 4 << 10}
	cmd.Stderr = &stderr
	lines := &lineWriter{take: func(line string) {
		move, err := parseMove(line)
		if err != nil {
			note("gorun: read what %s announces: %v", m.Command, err)
			return
		}
		announced(move)
	}}
	cmd.Stdout = lines
	err := runInGroup(cmd)
	if err == nil {
		err = errors.New("it ended")
	}
	if said := strings.TrimSpace(stderr.String()); said != "" {
		err = fmt.Errorf("%w: %s", err, lastLine(said))
	}
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

// lineWriter passes on whole lines, and at most maxMoveLine bytes of each.
type lineWriter struct {
	take func(string)
	part []byte
}

// Write implements io.Writer.
func (w *lineWriter) Write(b []byte) (int, error) {
	scan := bufio.NewReader(bytes.NewReader(b))
	for {
		piece, err := scan.ReadSlice('\n')
		if room := maxMoveLine - len(w.part); room > 0 {
			w.part = append(w.part, piece[:min(len(piece), room)]...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
		case err != nil:
			return len(b), nil
		default:
			if line := strings.TrimSpace(string(w.part)); line != "" {
				w.take(line)
			}
			w.part = w.part[:0]
		}
	}
}
