package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gorun/contrib/must"
)

// TestComplete fails when a linked module's licence is not in the file that gorun shows: go generate.
func TestComplete(t *testing.T) {
	must.Report(t, run(true, ".", "../../../cmd/gorun/THIRD_PARTY_LICENSES"))
	script, err := os.ReadFile("../build.sh")
	if err != nil || !strings.Contains(string(script), `-tags "`+tags+`,gorund$3" `) {
		t.Errorf("build.sh builds with other tags than %s: %v", tags, err)
	}
}

// TestUnknown: a module whose licence this program does not know is refused.
func TestUnknown(t *testing.T) {
	root := t.TempDir()
	must.Do(t, os.WriteFile(filepath.Join(root, "LICENSE"), []byte("All rights reserved."), 0o644))
	if _, err := report([]module{{name: "none", version: "v1.0.0", root: root}}); err == nil || !strings.Contains(err.Error(), "none v1.0.0") {
		t.Errorf("a module without a licence: %v", err)
	}
}
