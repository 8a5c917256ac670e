package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"gorun/launcher"
	"gorun/launcher/output"
	"gorun/launcher/plan"
	"gorun/rendezvous/wire"
	"gorun/topology"
)

// streamTable binds them.
func (o *jobFlags) streamTable() []cli.Flag {
	return []cli.Flag{
		&cli.PathFlag{Name: "output-filename", Destination: &o.outputDir, Usage: "also write each rank's output to `DIR`/rank.N/stdout and stderr"},
		&cli.StringFlag{Name: "tag", Destination: &o.tag, Usage: "put `TEMPLATE` before each line, in which {rank}, {host} and {stream} are filled in", DefaultText: "[{rank}]<{stream}>:"},
		&cli.BoolFlag{Name: "no-tag-output", Destination: &o.noTag, Usage: "put nothing before each line"},
		&cli.BoolFlag{Name: "prefix-output-with-timestamp", Destination: &o.timestamps, Aliases: []string{"timestamp-output", "prefix-timestamp"}, Usage: "put the time before each line"},
		&cli.StringFlag{Name: "only-ranks", Destination: &o.onlyRanks, Usage: "show the lines of these ranks alone: a `LIST` such as 0,4-7"},
		&cli.BoolFlag{Name: "merge-stderr", Destination: &o.merge, Aliases: []string{"merge-stderr-to-stdout"}, Usage: "show standard error among standard output"},
		&cli.StringFlag{Name: "prepend-pattern", Destination: &o.tagPattern, Usage: "Hydra's --tag: `PATTERN` with %r for the rank, %h for the host, %p for its number", Hidden: true},
		&cli.StringFlag{Name: "outfile-pattern", Destination: &o.outPattern, Usage: "write standard output to files instead: Hydra's `PATTERN` with %r, %h and %p", Hidden: true},
		&cli.StringFlag{Name: "errfile-pattern", Destination: &o.errPattern, Usage: "write standard error to files instead: Hydra's `PATTERN` with %r, %h and %p", Hidden: true},
		&cli.StringFlag{Name: "color", Destination: &o.color, Value: "auto", Usage: "give each rank's tag a colour: always, never, or auto for on a terminal (`WHEN`)"},
		&cli.BoolFlag{Name: "json-events", Destination: &o.jsonEvents, Aliases: []string{"json"}, Usage: "write each line and each event as a JSON object on a line of standard output"},
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
	}
	tty := term.IsTerminal(int(os.Stdout.Fd()))
	if tty {
		cfg.Refresh = time.Second
	}
	var err error
	if cfg.Color, err = colored(o, tty); err != nil {
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

// readPatterns reads Hydra's patterns for tags and files.
func readPatterns(o *jobFlags, cfg *output.Config) error {
	if err := o.atMostOne(&o.tag, &o.tagPattern); err != nil {
		return err
	}
	numbers := map[string]int{} // of hosts
	var err error
	filled := func(flag string, pattern *string) func(rank int) string {
		if wrong := checkPattern(*pattern); wrong != nil && err == nil {
			err = &usageError{fmt.Errorf("--%s %s: %w", flag, *pattern, wrong), "--" + flag + " '%h.%r'"}
		}
		if !o.given(pattern) {
			return nil
		}
		return func(rank int) string {
			host := cfg.Host(rank)
			if _, ok := numbers[host]; !ok {
				numbers[host] = len(numbers)
			}
			return fillPattern(*pattern, rank, host, numbers[host])
		}
	}
	tag := filled("prepend-pattern", &o.tagPattern)
	files := map[output.Stream]func(int) string{output.Stdout: filled("outfile-pattern", &o.outPattern), output.Stderr: filled("errfile-pattern", &o.errPattern)}
	if err != nil {
		return err
	}
	if tag != nil {
		cfg.Tag = func(rank int, _ output.Stream) string { return tag(rank) }
	}
	cfg.Divert = func(rank int, name output.Stream) string {
		if files[name] == nil {
			return ""
		}
		return files[name](rank)
	}
	cfg.TagDiverted = o.given(&o.tag) || o.given(&o.tagPattern) || o.tagOutput
	return nil
}

// checkPattern refuses a pattern with something in it that Hydra does not fill in.
func checkPattern(pattern string) error {
	for i := 0; i < len(pattern); i++ {
		if pattern[i] != '%' {
			continue
		}
		i++
		if i == len(pattern) || !strings.ContainsRune("rghp%", rune(pattern[i])) {
			return fmt.Errorf("%q is none of %%r, %%h, %%p, %%g, %%%%", pattern[i-1:min(i+1, len(pattern))])
		}
	}
	return nil
}

// fillPattern fills in a rank, its host and the number of that. There is one group of processes, %g.
func fillPattern(pattern string, rank int, host string, number int) string {
	return strings.NewReplacer("%%", "%", "%r", strconv.Itoa(rank), "%h", host, "%p", strconv.Itoa(number), "%g", "0").Replace(pattern)
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

// ranksOutput is the Mux in the launcher's words.
type ranksOutput struct{ *output.Mux }

func (o ranksOutput) Write(rank int, stream wire.Stream, data []byte) {
	o.Mux.Write(rank, output.Stream(stream), data)
}

// The events of --json beside output and note. Their names and fields stay as they are; the README lists them.
type (
	jobEvent struct {
		Event string   `json:"event"` // "job"
		Ranks int      `json:"ranks"`
		Hosts []string `json:"hosts"`
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
		Code   int    `json:"code"`
		Signal int    `json:"signal,omitempty"`
	}
	hostEvent struct {
		Event string    `json:"event"` // "host", which is silent, or back
		Host  string    `json:"host"`
		To    string    `json:"to,omitempty"`   // the host that does not hear it, if the launcher does
		State string    `json:"state"`          // a launcher.HostState
		Since time.Time `json:"since,omitzero"` // UTC: when it was last heard
	}
	edgeEvent struct {
		Event  string  `json:"event"` // "edge", one that the job has measured
		From   string  `json:"from"`
		To     string  `json:"to"`
		Speed  float64 `json:"speed_mbit"` // -1 unknown
		Source string  `json:"speed_source"`
		RTT    float64 `json:"rtt_us"` // -1 unknown
	}
	endEvent struct {
		Event string `json:"event"` // "end", the last
		Code  int    `json:"code"`
		Error string `json:"error,omitempty"`
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
		if e.Ended {
			mux.Event(exitedEvent{"exited", e.Rank, e.Host, e.Code, e.Signal})
		} else {
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
