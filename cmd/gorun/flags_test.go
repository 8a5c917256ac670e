package main

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// TestEveryFlagHasAScript: each name of each flag of a launch stands in a session of testdata/script, so that its
// meaning is held there.
func TestEveryFlagHasAScript(t *testing.T) {
	files, err := filepath.Glob("testdata/script/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	used := map[string]bool{}
	word := regexp.MustCompile(`(?:^|[\s'"=])--?([A-Za-z][-A-Za-z0-9]*)`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range word.FindAllSubmatch(text, -1) {
			used[string(m[1])] = true
		}
	}
	for _, f := range newApp(nil).Flags {
		for _, name := range f.Names() {
			if !used[name] {
				t.Errorf("no script mentions flag --%s (of %v)", name, f.Names())
			}
		}
	}
}
