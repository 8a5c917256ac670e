package collective

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"

	"gorun/collective/kernel"
)

// maxListed bounds the contributions that an error lists, so that its text stays readable in a large world.
const maxListed = 16

// mismatch returns the error that every rank gets when contributions to one operation differ. votes are in the
// order of positions, so that the text is the same on all hosts.
func mismatch(g *group, name string, votes []vote) *Error {
	type contribution struct {
		req   Request
		where string
	}
	var all []contribution
	var differ differences
	for pos, v := range votes {
		rest := v.ready.body
		for range v.ready.variants {
			var x variant
			x, rest, _ = readVariant(rest)
			if name != joinName && x.kind() == Join {
				continue
			}
			var ranks []int
			for i := range x.count() {
				r, _ := x.rank(i)
				ranks = append(ranks, r)
			}
			p := contribution{x.request(), listRanks(ranks) + " on " + g.hosts[pos].Name}
			if n := len(all); n > 0 {
				differ.compare(&all[0].req, &p.req)
			}
			all = append(all, p)
		}
	}
	// Ranks that submitted the same come together, in the order of their first one.
	var lines []string
	for i := range all {
		if slices.ContainsFunc(all[:i], func(c contribution) bool { return c.req.agrees(&all[i].req) }) {
			continue
		}
		var who []string
		for j := i; j < len(all); j++ {
			if all[j].req.agrees(&all[i].req) && len(who) <= maxListed {
				who = append(who, all[j].where)
			}
		}
		if len(who) > maxListed {
			who[maxListed] = "more"
		}
		lines = append(lines, strings.Join(who, " and ")+" submitted "+differ.describe(&all[i].req))
	}
	if len(lines) > maxListed {
		lines = append(lines[:maxListed], fmt.Sprintf("and %d more", len(lines)-maxListed))
	}
	kind := all[0].req.Kind.String() + " "
	if differ.kind {
		kind = ""
	}
	return &Error{Code: CodeMismatch, Text: fmt.Sprintf("%s%q: %s", kind, name, strings.Join(lines, ", "))}
}

// collision returns the error for two names with one hash.
func collision(a string, b []byte) *Error {
	return &Error{Code: CodeMismatch, Text: fmt.Sprintf("names %q and %q cannot be told apart, change one of them", a, b)}
}

// differences are the fields, beyond type and shape, that must be named because they are not equal.
type differences struct {
	kind, op, root, packed, pre, post, coding bool
}

func (d *differences) compare(a, b *Request) {
	d.kind = d.kind || a.Kind != b.Kind
	d.op = d.op || a.Op != b.Op
	d.root = d.root || a.Root != b.Root
	d.packed = d.packed || a.signature() != b.signature()
	d.coding = d.coding || a.Coding != b.Coding
	d.pre = d.pre || math.Float64bits(a.Pre) != math.Float64bits(b.Pre)
	d.post = d.post || math.Float64bits(a.Post) != math.Float64bits(b.Post)
}

func (d *differences) describe(r *Request) string {
	var b strings.Builder
	if d.kind {
		b.WriteString(r.Kind.String())
		if r.Kind == Barrier || r.Kind == Join {
			return b.String()
		}
		b.WriteByte(' ')
	}
	switch r.Kind {
	case AddGroup:
		return b.String() + listRanks(r.Shape)
	case RemoveGroup:
		return b.String() + fmt.Sprint("number ", r.Root)
	}
	if d.op && r.Kind.reduces() {
		b.WriteString(r.Op.String() + " of ")
	}
	tensor := describeTensor(r.Type, r.Shape)
	if r.Kind.ragged() {
		tensor = strings.Replace(tensor, "[0", "[*", 1) // rows may differ and were not compared
	}
	b.WriteString(tensor)
	if d.root && r.Kind.rooted() {
		way := "from"
		if r.Kind == Reduce || r.Kind == Gather {
			way = "to"
		}
		fmt.Fprintf(&b, " %s root %d", way, r.Root)
	}
	if s := r.signature(); d.packed && s != 0 {
		fmt.Fprintf(&b, " packed of several, of shapes %08x", s)
	}
	if d.pre && r.Kind.reduces() {
		fmt.Fprintf(&b, " prescale %g", r.Pre)
	}
	if d.post && r.Kind.reduces() {
		fmt.Fprintf(&b, " postscale %g", r.Post)
	}
	if wrong := r.misdealt(); wrong != "" {
		b.WriteString(" whose " + wrong)
	}
	if d.coding && r.Coding > kernel.CodingDefault {
		b.WriteString(" wire compression " + r.Coding.String())
	}
	return b.String()
}

// compare returns an error if ranks submitted different things, or if some joined that cannot be missing.
func (u *use) compare() (joined bool, err *Error) {
	var first []byte // what the first rank with a contribution submitted
	for i := range u.votes {
		v := &u.votes[i]
		if string(v.name) != u.name {
			return false, collision(u.name, v.name)
		}
		rest := v.body
		for range v.variants {
			var theirs variant
			theirs, rest, _ = readVariant(rest)
			switch {
			case theirs.kind() == Join && u.name != joinName:
				joined = true
			case first == nil:
				first = theirs.signature
			case !bytes.Equal(first, theirs.signature):
				return false, mismatch(u.group, u.name, u.votes)
			}
		}
	}
	if kind := Kind(first[0]); joined && !kind.joins() {
		return false, refuseJoined(kind, u.name)
	}
	return joined, nil
}

// refuseJoined returns the error of an operation that needs a contribution of every rank.
func refuseJoined(kind Kind, name string) *Error {
	return &Error{Code: CodeMismatch, Text: kind.String() + " is not supported with Join at this time: " + name +
		" has no part of ranks that joined"}
}
