package collective

import (
	"bytes"
	"fmt"
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
		words words
		where []string
	}
	var all []contribution // those of ranks that submitted the same come together, in the order of their first one
	var differs [len(words{})]bool
	for pos := range votes {
		for v := range votes[pos].all() {
			if name != joinName && v.kind() == Join {
				continue
			}
			var ranks []int
			for i := range v.count() {
				r, _ := v.rank(i)
				ranks = append(ranks, r)
			}
			req := v.request()
			i := slices.IndexFunc(all, func(c contribution) bool { return c.req.agrees(&req) })
			if i < 0 {
				i = len(all)
				all = append(all, contribution{req: req, words: req.words()})
				for k, word := range all[i].words {
					differs[k] = differs[k] || word != all[0].words[k]
				}
			}
			all[i].where = append(all[i].where, listRanks(ranks)+" on "+g.hosts[pos].Name)
		}
	}
	kind := all[0].words[0] + " "
	if differs[0] {
		kind = ""
	}
	var lines []string
	for _, c := range all {
		line := strings.Join(atMost(c.where, "more"), " and ") + " submitted"
		for k, word := range c.words {
			if word != "" && (differs[k] || k == tensorWord) {
				line += " " + word
			}
		}
		lines = append(lines, line)
	}
	lines = atMost(lines, fmt.Sprintf("and %d more", len(lines)-maxListed))
	return &Error{Code: CodeMismatch, Text: fmt.Sprintf("%s%q: %s", kind, name, strings.Join(lines, ", "))}
}

// atMost returns the first maxListed texts, and what stands for the others.
func atMost(all []string, others string) []string {
	if len(all) > maxListed {
		return append(all[:maxListed], others)
	}
	return all
}

// collision returns the error for two names with one hash.
func collision(a string, b []byte) *Error {
	return &Error{Code: CodeMismatch, Text: fmt.Sprintf("names %q and %q cannot be told apart, change one of them", a, b)}
}

// words describe a contribution. A word that is the same for all contributions is left out, but for the tensor.
type words [9]string

const tensorWord = 2

func (r *Request) words() (w words) {
	w[0] = r.Kind.String()
	switch r.Kind {
	case Barrier, Join:
		return w
	case AddGroup:
		w[tensorWord] = listRanks(r.Shape)
		return w
	case RemoveGroup:
		w[tensorWord] = fmt.Sprint("number ", r.Root)
		return w
	}
	w[tensorWord] = describeTensor(r.Type, r.Shape)
	if r.Kind.ragged() {
		w[tensorWord] = strings.Replace(w[tensorWord], "[0", "[*", 1) // rows may differ and were not compared
	}
	if r.Kind.reduces() {
		w[1] = r.Op.String() + " of"
		if r.Pre != 1 {
			w[5] = fmt.Sprintf("prescale %g", r.Pre)
		}
		if r.Post != 1 {
			w[6] = fmt.Sprintf("postscale %g", r.Post)
		}
	}
	if r.Kind.rooted() {
		w[3] = fmt.Sprint("from root ", r.Root)
		if r.Kind == Reduce || r.Kind == Gather {
			w[3] = fmt.Sprint("to root ", r.Root)
		}
	}
	if s := r.signature(); s != 0 {
		w[4] = fmt.Sprintf("packed of several, of shapes %08x", s)
	}
	if wrong := r.misdealt(); wrong != "" {
		w[7] = "whose " + wrong
	}
	if r.Coding > kernel.CodingDefault {
		w[8] = "wire compression " + r.Coding.String()
	}
	return w
}

// compare returns an error if ranks submitted different things, or if some joined that cannot be missing.
func (u *use) compare() (joined bool, err *Error) {
	var first []byte // what the first rank with a contribution submitted
	for i := range u.votes {
		v := &u.votes[i]
		if string(v.name) != u.name {
			return false, collision(u.name, v.name)
		}
		for theirs := range v.all() {
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
