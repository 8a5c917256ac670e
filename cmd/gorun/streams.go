package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"gorun/launcher/output"
	"gorun/launcher/plan"
)

// streamTable binds the flags for output and input.
func (o *jobFlags) streamTable() []cli.Flag {
	return []cli.Flag{
		&cli.PathFlag{Name: "output-filename", Destination: &o.outputDir,
			Usage: "also write each rank's output to `DIR`/rank.N/stdout and stderr"},
		&cli.StringFlag{Name: "tag", Destination: &o.tag,
			Usage: "put `TEMPLATE` before each line, in which {rank}, {host} and {stream} are filled in", DefaultText: "[{rank}]<{stream}>:"},
		&cli.BoolFlag{Name: "no-tag-output", Destination: &o.noTag, Usage: "put nothing before each line"},
		&cli.BoolFlag{Name: "prefix-output-with-timestamp", Destination: &o.timestamps, Aliases: []string{"timestamp-output", "prefix-timestamp"},
			Usage: "put the time before each line"},
		&cli.StringFlag{Name: "only-ranks", Destination: &o.onlyRanks,
			Usage: "show only the lines of these ranks: a `LIST` such as 0,4-7"},
		&cli.BoolFlag{Name: "merge-stderr", Destination: &o.merge, Aliases: []string{"merge-stderr-to-stdout"},
			Usage: "show standard error on standard output"},
		&cli.StringFlag{Name: "prepend-pattern", Destination: &o.tagPattern,
			Usage: "Hydra's --tag: `PATTERN` with %r for the rank, %h for the host, %p for its number", Hidden: true},
		&cli.StringFlag{Name: "outfile-pattern", Destination: &o.outPattern,
			Usage: "write standard output to files instead: Hydra's `PATTERN` with %r, %h and %p", Hidden: true},
		&cli.StringFlag{Name: "errfile-pattern", Destination: &o.errPattern,
			Usage: "write standard error to files instead: Hydra's `PATTERN` with %r, %h and %p", Hidden: true},
		&cli.StringFlag{Name: "color", Destination: &o.color, Value: "auto",
			Usage: "give each rank's tag a colour `WHEN`: always, never, or auto (on a terminal)"},
		&cli.BoolFlag{Name: "json-events", Destination: &o.jsonEvents, Aliases: []string{"json"},
			Usage: "write each line and each event as a JSON object on a line of standard output"},
	}
}

// newMux makes the Mux between the ranks and the user's terminal.
func newMux(o *jobFlags, p plan.Placement, where *places, changing bool) (*output.Mux, error) {
	for _, r := range p.Ranks {
		where.host[r.Rank] = p.Hosts[r.Host].Name
	}
	host, ranks := where.of, len(p.Ranks)
	if changing {
		ranks = 1 << 20 // their number is unknown
	}
	cfg := output.Config{
		Ranks:     len(p.Ranks),
		Stdout:    os.Stdout,
		Stderr:    os.Stderr,
		Tag:       output.HorovodTag,
		Merge:     o.merge,
		Timestamp: o.timestamps,
		// A program that logs in may ask at the terminal for a password, where a status line would get in its way.
		Status: term.IsTerminal(int(os.Stderr.Fd())) && o.sshCommand == "",
		Dir:    o.outputDir,
		JSON:   o.jsonEvents,
		Host:   host,
		// Piped, a progress bar would be a line each time it moves.
		Refresh: time.Second,
	}
	var err error
	if cfg.Color, err = colored(o, term.IsTerminal(int(os.Stdout.Fd()))); err != nil {
		return nil, err
	}
	if cfg.Show, err = shownRanks(o, ranks); err != nil {
		return nil, err
	}
	if o.given(&o.tag) {
		if cfg.Tag, err = output.TemplateTag(o.tag, host); err != nil {
			return nil, &usageError{err, "--tag '{host}:{rank} '"}
		}
	}
	if err := readPatterns(o, &cfg); err != nil {
		return nil, err
	}
	if o.noTag || o.given(&o.tag) && o.tag == "" {
		cfg.Tag = nil
	}
	mux, err := output.New(cfg)
	if err != nil {
		return nil, &usageError{err, "--output-filename names a directory, -outfile-pattern files; directories are made if they are missing"}
	}
	return mux, nil
}

// readersOf reads --stdin: the ranks that read standard input, nil for rank 0.
func readersOf(o *jobFlags, ranks int, changing bool) ([]int, error) {
	switch which := o.stdin; {
	case !o.given(&o.stdin), which == "none", which == "0":
		return nil, nil
	case changing:
		return nil, &usageError{fmt.Errorf("--stdin %s: in an elastic job only rank 0 can read standard input", which), "--stdin none"}
	case which == "all":
		which = fmt.Sprintf("0-%d", ranks-1)
		fallthrough
	default:
		chosen, err := parseRanks(which, ranks)
		if err != nil {
			return nil, &usageError{fmt.Errorf("--stdin %s: %w", which, err), "--stdin all, --stdin none or --stdin 0,4-7"}
		}
		return slices.Sorted(maps.Keys(chosen)), nil
	}
}

// input returns the standard input of the ranks.
func input(o *jobFlags) io.Reader {
	if o.stdin == "none" {
		return strings.NewReader("")
	}
	return os.Stdin
}

// colored reads --color; NO_COLOR is what users of many programs set.
func colored(o *jobFlags, tty bool) (bool, error) {
	switch when := cmp.Or(o.color, "auto"); when {
	case "always":
		return true, nil
	case "never":
		return false, nil
	case "auto":
		return tty && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb", nil
	default:
		return false, &usageError{fmt.Errorf("--color %s: none of always, never, auto", when), ""}
	}
}

// shownRanks reads --only-ranks; nil shows all.
func shownRanks(o *jobFlags, ranks int) (func(int) bool, error) {
	if !o.given(&o.onlyRanks) {
		return nil, nil
	}
	shown, err := parseRanks(o.onlyRanks, ranks)
	if err != nil {
		return nil, &usageError{fmt.Errorf("--only-ranks %s: %w", o.onlyRanks, err), "--only-ranks 0,4-7"}
	}
	return func(rank int) bool { return shown[rank] }, nil
}

// parseRanks reads a list such as 0,4-7.
func parseRanks(list string, ranks int) (map[int]bool, error) {
	out := map[int]bool{}
	for part := range strings.SplitSeq(list, ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		lo, err := strconv.Atoi(from)
		hi, err2 := strconv.Atoi(to)
		if errors.Join(err, err2) != nil || lo < 0 || hi < lo {
			return nil, fmt.Errorf("%q is no rank and no range of ranks", part)
		}
		if hi >= ranks {
			return nil, fmt.Errorf("there are ranks 0 to %d", ranks-1)
		}
		for r := lo; r <= hi; r++ {
			out[r] = true
		}
	}
	return out, nil
}

// places remembers on which host each process runs, for tags and events.
type places struct {
	mu   sync.Mutex
	host map[int]string
}

func (p *places) of(process int) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.host[process]
}

// admit returns what makes room for a process in mux.
func (p *places) admit(mux *output.Mux) func(int, string) error {
	return func(process int, host string) error {
		p.mu.Lock()
		p.host[process] = host
		p.mu.Unlock()
		return mux.Add(process)
	}
}
