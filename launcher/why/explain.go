package why

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"gorun/topology"
)

// apart names ranks that call other operations than they did before, or than others do.
func apart(of []Finding) string {
	var parts []string
	for i, f := range of {
		if i == 3 {
			parts = append(parts, fmt.Sprintf("and %d more ranks", len(of)-i))
			break
		}
		part := fmt.Sprintf("rank %d on %s %s", f.Rank, f.Host, f.Diverged)
		if at := f.Top(); at != "" {
			part += ", at " + at
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, "; ")
}

// Explain returns the line that names what went wrong in a job, as far as its recording shows it, and lines of evidence.
func (r *Recording) Explain() (verdict string, evidence []string) {
	found := slices.Clone(r.Found)
	Learn(found, r.Ops)
	verdict, evidence = Explain(found)
	at := time.UnixMicro(r.Head.Time).Local().Format(time.DateTime)
	evidence = append([]string{fmt.Sprintf("recorded %s because of %s", at, r.Head.Reason)}, evidence...)
	if failed := slices.IndexFunc(found, func(f Finding) bool { return f.Failed != "" }); r.Head.Error != "" || failed >= 0 {
		verdict = r.Head.Error
		for _, f := range found {
			switch {
			case f.Failed == "" || strings.Contains(verdict, f.Failed):
			case strings.HasPrefix(f.Failed, verdict): // with the last line that it wrote
				verdict = f.Failed
			default:
				verdict += "; " + f.Failed
			}
		}
		verdict += after(apart(slices.DeleteFunc(found, func(f Finding) bool { return f.Diverged == "" })), "; ")
	}
	return verdict, append(evidence, r.last()...)
}

// last describes the last operations of each host, what its ranks added up without it, and what happened to its links.
func (r *Recording) last() (lines []string) {
	const most = 4
	for _, host := range r.Head.Hosts {
		var of []*Op
		for i := range r.Ops {
			if r.Ops[i].Host == host {
				of = append(of, &r.Ops[i])
			}
		}
		if len(of) == 0 {
			continue
		}
		lines = append(lines, fmt.Sprintf("%s recorded %d operations; the last ones:", host, len(of)))
		for _, o := range of[max(len(of)-most, 0):] {
			lines = append(lines, "  "+o.describe())
		}
	}
	for _, s := range r.Sums[:min(len(r.Sums), most)] {
		lines = append(lines, s.describe())
	}
	for _, e := range r.Links[max(len(r.Links)-most, 0):] {
		text := fmt.Sprintf("%s the connection %d of %s to %s %s", clock(e.Time), e.Stream, e.Host, e.Peer, e.What)
		if e.Resent > 0 {
			text += fmt.Sprintf(", segments sent again: %d", e.Resent)
		}
		lines = append(lines, text)
	}
	return lines
}

func clock(us int64) string { return time.UnixMicro(us).Local().Format("15:04:05.000") }

// describe puts an operation into a line.
func (o *Op) describe() string {
	text := o.called()
	if o.Bytes > 0 {
		text += fmt.Sprintf(" of %d bytes of %s", o.Bytes, o.Type)
	}
	switch {
	case o.First == 0:
		text += ": no rank of this host called it"
	case o.Last == 0:
		text += fmt.Sprintf(": rank %d called it at %s", o.FirstRank, clock(o.First))
	case o.First == o.Last:
		text += fmt.Sprintf(": called at %s", clock(o.First))
	default:
		text += fmt.Sprintf(": rank %d called it at %s, rank %d last, %v later", o.FirstRank, clock(o.First), o.LastRank, rounded(o.Last-o.First))
	}
	if o.LastHost != "" && o.Others > o.Last && o.Last > 0 {
		text += fmt.Sprintf("; %s was ready %v after that", o.LastHost, rounded(o.Others-o.Last))
	}
	switch {
	case o.Outcome == "open" && o.Began > 0:
		text += "; its data is under way"
	case o.Outcome == "open" && len(o.Missing) > 0:
		var missing []string
		for _, a := range o.Missing {
			missing = append(missing, fmt.Sprintf("rank %s on %s", topology.Ranges(a.Ranks), a.Host))
		}
		text += "; waits for " + strings.Join(missing, " and ")
	case o.Outcome == "open":
		text += "; not ended"
	case o.Began == 0:
		text += "; " + o.Outcome
	default:
		text += fmt.Sprintf("; %s %v after all were ready", o.Outcome, rounded(o.Ended-o.Began))
	}
	return text
}

// describe puts a sum into a line.
func (s *Sum) describe() string {
	text := fmt.Sprintf("%s added up allreduce %q of %d bytes in shared memory", s.Host, s.Name, s.Bytes)
	for i, rank := range s.Ranks[:min(len(s.Ranks), len(s.Times))] {
		if s.Times[i] != s.Times[0] {
			return fmt.Sprintf("%s: rank %d came to it %d times, rank %d %d times", text, s.Ranks[0], s.Times[0], rank, s.Times[i])
		}
	}
	if len(s.Times) > 0 {
		text += fmt.Sprintf(", %d times", s.Times[0])
	}
	return text
}
