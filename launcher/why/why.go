// Package why puts in one line what a job waits for, from what its daemons found out about each rank. It is pure: the
// launcher gathers the Findings, and commands show what Explain makes of them.
//
// The rules, in this order: a host that does not answer; ranks that wait for each other; ranks that others wait for, with what
// each of them does; data that is under way; ranks that are late again and again, or kept from running most of the time; ranks
// that do not go on; nothing is wrong. Only waits that are long for the job count: the launcher asks Patience.
package why

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"gorun/rendezvous/wire"
	"gorun/topology"
)

// Finding is what was found out about one rank. Times are in microseconds.
type Finding struct {
	Rank     int                `json:"rank"`
	Host     string             `json:"host"`
	PID      int                `json:"pid,omitempty"`
	State    string             `json:"state"`              // what its process does, in words
	Does     []string           `json:"does,omitempty"`     // what it does in unfinished operations, the oldest first
	Behind   bool               `json:"behind,omitempty"`   // others wait for it, for long
	Waits    bool               `json:"waits,omitempty"`    // it waits for others, for long
	Stays    bool               `json:"stays,omitempty"`    // its activity is the same for long
	Activity string             `json:"activity,omitempty"` // what it reports that it does, "" if it counts nothing
	For      int64              `json:"for_us,omitempty"`   // how long already
	Stack    string             `json:"stack,omitempty"`    // of its threads, by Python
	Kernel   []string           `json:"kernel,omitempty"`   // functions of the kernel that its main thread is in, the innermost first
	Native   string             `json:"native,omitempty"`   // of its threads with the functions of C, if a user has asked for them
	Tool     string             `json:"tool,omitempty"`     // that showed it
	Notes    []string           `json:"notes,omitempty"`    // why no tool did, and what one did to the rank
	Threads  []wire.ThreadState `json:"threads,omitempty"`  // with Native
	Silent   bool               `json:"silent,omitempty"`   // its host does not answer
	Unread   bool               `json:"unread,omitempty"`   // the launcher does not listen to its host, as nobody reads what ranks write
	Ended    bool               `json:"ended,omitempty"`

	Failed   string    `json:"failed,omitempty"`   // how it failed
	Signs    *Signs    `json:"signs,omitempty"`    // nil if it was not looked at closely
	Links    []Link    `json:"links,omitempty"`    // of its host, those in which most waits
	Ahead    int64     `json:"ahead_us,omitempty"` // how much its host's clock is ahead of the launcher's
	Diverged string    `json:"diverged,omitempty"` // how its calls differ from those before, or of others
	Moving   float64   `json:"moving,omitempty"`   // share of the time in which data was under way between hosts
	Late     *Lateness `json:"late,omitempty"`     // nil if it is not mostly the last one

	Waited int64       `json:"waited_us,omitempty"` // how long others have waited for it; 0 if that is unknown
	Step   int64       `json:"step_us,omitempty"`   // how long a step of the job takes
	Split  *wire.Split `json:"split,omitempty"`     // where its time went; nil if it counts nothing
}

// Explain returns the line that names which ranks a job waits for and what they do, and lines of evidence.
func Explain(all []Finding) (verdict string, evidence []string) {
	for _, f := range all {
		who := fmt.Sprintf("rank %d on %s", f.Rank, f.Host)
		if f.PID > 0 {
			who += fmt.Sprintf(", process %d", f.PID)
		}
		evidence = append(evidence, who+": "+strings.Join(append([]string{f.does()}, f.Does...), "; "))
	}
	verdict = verdictOf(all)
	if text := clocks(all); text != "" {
		verdict += "; " + text
	}
	return verdict, evidence
}

// inOperation is the activity of a rank that waits for others, or for data that is under way.
const inOperation = "waits for an operation"

func verdictOf(all []Finding) string {
	pick := func(is func(Finding) bool) []Finding {
		return slices.DeleteFunc(slices.Clone(all), func(f Finding) bool { return !is(f) })
	}
	unread := pick(func(f Finding) bool { return f.Unread })
	silent := pick(func(f Finding) bool { return f.Silent })
	behind := pick(func(f Finding) bool { return f.Behind && !f.Silent })
	waiting := pick(func(f Finding) bool { return f.Waits })
	running := pick(func(f Finding) bool { return !f.Ended && !f.Silent })
	crossed := pick(func(f Finding) bool { return f.Behind && f.Waits && !f.Silent })
	diverged := pick(func(f Finding) bool { return f.Diverged != "" && !f.Silent })

	late := pick(func(f Finding) bool {
		return f.Late != nil && !f.Silent && !f.Ended && !shared(f, all) && f.Activity != inOperation
	})
	slowed := pick(func(f Finding) bool { return !f.Silent && f.awaited() && f.slowed() && !shared(f, all) })
	moving := slices.ContainsFunc(all, func(f Finding) bool { return f.Moving >= 0.5 })
	var splits []*wire.Split
	for _, f := range running {
		splits = append(splits, f.Split)
	}
	switch path, split := network(all), wire.DescribeSplits(splits); {
	case len(all) == 0:
		return "the job has no ranks yet"
	case len(unread) > 0:
		return "nobody reads the output of gorun, such as a pager or a stopped terminal, and its ranks wait until somebody does: " +
			placed(unread)
	case len(silent) > 0:
		return fmt.Sprintf("the job waits for %s: %s not answer", placed(silent), plural(hosts(silent), "the host does", "the hosts do"))
	case len(diverged) > 0:
		return apart(diverged)
	case len(crossed) > 1 && len(crossed) == len(behind):
		return placed(crossed) + " wait for each other: they call different operations, or in different orders or numbers" + after(calls(crossed), ": ")
	case len(behind) > 0:
		if idle := slices.DeleteFunc(slices.Clone(behind), func(f Finding) bool { return f.Waits }); len(idle) > 0 {
			behind = idle
		}
		return "the job waits for " + placed(behind) + what(behind)
	case len(waiting) > 0:
		return placed(waiting) + plural(waiting, " waits", " wait") + " for data that is under way" + plural(hosts(all), "", " between hosts") + after(path, ": ")
	case len(late) > 0:
		return "the job waits again and again for " + placed(late) + ", " + late[0].Late.String() + what(late)
	case len(slowed) > 0:
		return "the job is slowed down by " + placed(slowed) + what(slowed)
	case len(running) == 0:
		return "all ranks have ended"
	case moving && path != "":
		return "the job waits mostly for data that is under way between hosts: " + path
	case split != "" && slices.ContainsFunc(running, func(f Finding) bool { return !f.stuck() }):
		return "nothing is wrong: " + split
	}
	return "no rank waits for another: " + placed(running) + what(running)
}

// does describes a rank by what is most telling: its process is stopped or stuck, then what explains most of the time.
func (f Finding) does() string {
	state, cause := f.state(), f.cause()
	switch {
	case f.Silent:
		return "its host does not answer"
	case strings.Contains(state, "paused by a signal"):
		return fmt.Sprintf("%s (kill -CONT %d continues it)", state, f.PID)
	case strings.Contains(state, "paused by a debugger"):
		return state
	case f.Failed != "":
		return "has failed: " + f.Failed
	case cause.share > 0 && (f.Behind || f.Late != nil || f.slowed() || f.stuck() && !cause.slows): // else it is no reason
		return cause.text + cause.at
	case f.Activity == "computes", f.Activity == "":
		return state + after(f.Top(), " at ") + f.beside()
	default:
		return f.Activity + f.since() + after(f.Top(), " at ")
	}
}

// beside is what the kernel shows of what a rank waits for.
func (f Finding) beside() string {
	if f.Signs == nil || !strings.HasPrefix(f.State, "waits") {
		return ""
	}
	return after(strings.Join(f.Signs.Beside, ", "), "; ")
}

func (f Finding) state() string { return strings.TrimSuffix(f.State, fmt.Sprintf(" (pid %d)", f.PID)) }

// awaited reports whether others wait for it at the moment.
func (f Finding) awaited() bool {
	return slices.ContainsFunc(f.Does, func(does string) bool { return strings.HasPrefix(does, "has not called ") })
}

// since is how long its activity lasts already.
func (f Finding) since() string {
	if d := time.Duration(f.For) * time.Microsecond; d >= time.Second {
		return fmt.Sprintf(" for %v", d.Round(time.Second))
	}
	return ""
}

func after(text, before string) string {
	if text == "" {
		return ""
	}
	return before + text
}

// debugged reports whether a stack is one of Python's debugger.
func debugged(stack string) bool {
	return strings.Contains(stack, "/pdb.py\"") || strings.Contains(stack, "/bdb.py\"")
}

// Top returns where the main thread is, as "function (file:line)": the innermost frame outside of gorun's binding and
// of Python's own library. If that is in an installed package, Top adds the user's frame that called it. It returns ""
// if nothing is known.
func (f Finding) Top() string {
	frames := slices.DeleteFunc(Main(f.Stack), Frame.library)
	if len(frames) == 0 {
		return ""
	}
	text := frames[0].short()
	if own := slices.IndexFunc(frames, func(f Frame) bool { return !f.installed() }); own > 0 {
		text += ", called at " + frames[own].short()
	}
	return text
}

// Ranks names ranks: "rank 3", or "ranks 0-2,5", and not all of very many.
func Ranks(numbers []int) string {
	if len(numbers) == 1 {
		return fmt.Sprintf("rank %d", numbers[0])
	}
	const most = 16
	text := topology.Ranges(numbers)
	if parts := strings.Split(text, ","); len(parts) > most {
		text = fmt.Sprintf("%s,… (%d in all)", strings.Join(parts[:most], ","), len(numbers))
	}
	return "ranks " + text
}

// placed names ranks and their hosts: "ranks 0-2 on host1 and rank 5 on host2".
func placed(of []Finding) string {
	var parts []string
	for _, host := range hosts(of) {
		var numbers []int
		for _, f := range of {
			if f.Host == host {
				numbers = append(numbers, f.Rank)
			}
		}
		parts = append(parts, Ranks(numbers)+" on "+host)
	}
	const most = 4
	if len(parts) > most {
		return fmt.Sprintf("%s and ranks on %d more hosts", strings.Join(parts[:most-1], ", "), len(parts)-most+1)
	}
	return strings.Join(parts, " and ")
}

func hosts(of []Finding) (names []string) {
	for _, f := range of {
		if !slices.Contains(names, f.Host) {
			names = append(names, f.Host)
		}
	}
	return names
}

func plural[T any](of []T, one, many string) string {
	if len(of) == 1 {
		return one
	}
	return many
}

// what is the end of a sentence about ranks: what they do, equal ones together.
func what(of []Finding) string {
	groups := map[string][]int{}
	for _, f := range of {
		does := f.does()
		groups[does] = append(groups[does], f.Rank)
	}
	texts := make([]string, 0, len(groups))
	for does := range groups {
		texts = append(texts, does)
	}
	slices.SortFunc(texts, func(a, b string) int {
		return cmp.Or(len(groups[b])-len(groups[a]), strings.Compare(a, b))
	})
	switch {
	case len(of) == 1:
		return ", which " + texts[0]
	case len(texts) == 1:
		return ", each of which " + texts[0]
	}
	var parts []string
	for i, does := range texts {
		if i == 3 {
			parts = append(parts, fmt.Sprintf("and %d more", len(texts)-i))
			break
		}
		parts = append(parts, fmt.Sprintf("(%s) %s", topology.Ranges(groups[does]), does))
	}
	return ": " + strings.Join(parts, ", ")
}

// calls names the operation that each rank is in.
func calls(of []Finding) string {
	var parts []string
	for _, f := range of[:min(len(of), 4)] {
		_, op, _ := strings.Cut(strings.Join(f.Does, "\n"), "waits in ")
		if op, _, is := strings.Cut(op, " for "); is {
			parts = append(parts, fmt.Sprintf("rank %d is in %s", f.Rank, op))
		}
	}
	return strings.Join(parts, ", ")
}
