package ssh

import (
	"maps"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gorun/contrib/must"
)

// TestKeywords: the page of docs has the keywords that the code has, and OpenSSH prints no other.
func TestKeywords(t *testing.T) {
	page := must.Read(t, "../../docs/reference/ssh-config.md")
	for class, title := range map[class]string{obeyed: "Obeyed", without: "Of no effect", system: "By the system's ssh"} {
		_, section, _ := strings.Cut(string(page), "\n## "+title+"\n")
		section, _, _ = strings.Cut(section, "\n## ")
		have := map[string]bool{}
		for line := range strings.Lines(section) {
			if cells := strings.Split(line, "|"); len(cells) > 2 {
				for _, m := range regexp.MustCompile("`([A-Za-z0-9]+)`").FindAllStringSubmatch(cells[1], -1) {
					have[m[1]] = true
				}
			}
		}
		want := strings.Fields(keywords[class])
		if got := slices.Sorted(maps.Keys(have)); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
			t.Errorf("%s: the page has %q, the code %q", title, got, want)
		}
	}
	out, err := exec.Command("ssh", "-G", "-F", "none", "host").Output()
	if err != nil {
		t.Skip("needs ssh: install openssh-client")
	}
	for line := range strings.Lines(string(out)) {
		keyword, _, _ := strings.Cut(strings.ToLower(line), " ")
		if classes[keyword] == unknown {
			t.Errorf("ssh -G prints %s, which is in no class", keyword)
		}
	}
}
