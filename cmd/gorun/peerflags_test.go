//go:build linux

package main

import (
	"regexp"
	"strings"
	"testing"

	"gorun/contrib/must"
)

// TestPeerFlags holds the tables of other launchers' flags against gorun's own: none that gorun has is in them, and
// they point to none that gorun lacks. Each flag has a place on the page for the users of its launcher.
func TestPeerFlags(t *testing.T) {
	flags := new(jobFlags).table()
	mentioned := regexp.MustCompile(`(?:^|[ :;])--?([a-z][a-z-]*)`)
	for _, p := range peers {
		for names, meant := range p.flags {
			for _, m := range mentioned.FindAllStringSubmatch(meant, -1) {
				if m[1] != "m" && findFlag(append(new(topoFlags).table(), flags...), m[1]) == nil { // -m is Python's
					t.Errorf("--%s: %q: gorun has no --%s", names, meant, m[1])
				}
			}
			for name := range strings.FieldsSeq(names) {
				if findFlag(flags, name) != nil {
					t.Errorf("--%s is a flag of gorun's", name)
				}
				if p.page != "" && !onPage(t, p.page, name) {
					t.Errorf("docs/migrate/%s.md does not have --%s", p.page, name)
				}
			}
		}
	}
}

// TestHorovodFlagsHaveAPlace: the page for horovodrun's users has each spelling of its flags.
func TestHorovodFlagsHaveAPlace(t *testing.T) {
	for _, name := range horovodNames() {
		if !onPage(t, "horovodrun", name) {
			t.Errorf("docs/migrate/horovodrun.md does not have --%s", name)
		}
	}
}

// onPage reports whether a page of docs/migrate has a flag in the first column of a table.
func onPage(t *testing.T, page, flag string) bool {
	t.Helper()
	text := must.Read(t, docs+"migrate/"+page+".md")
	named := regexp.MustCompile("[` ]--?" + regexp.QuoteMeta(flag) + "[` =]")
	for line := range strings.Lines(string(text)) {
		if column, _, ok := strings.Cut(strings.TrimPrefix(line, "| "), " | "); ok && named.MatchString(column) {
			return true
		}
	}
	return false
}
