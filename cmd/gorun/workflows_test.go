package main

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"gorun/contrib/must"
)

// TestWorkflowsNameCommits: a tag of an action can be moved to other code.
func TestWorkflowsNameCommits(t *testing.T) {
	files, err := filepath.Glob("../../.github/workflows/*.yml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d workflows, %v", len(files), err)
	}
	pinned := regexp.MustCompile(`@[0-9a-f]{40} # v[0-9.]+$`)
	for _, file := range files {
		text := must.Read(t, file)
		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, "uses:") && !pinned.MatchString(strings.TrimSpace(line)) {
				t.Errorf("%s: %s", file, strings.TrimSpace(line))
			}
		}
	}
}
