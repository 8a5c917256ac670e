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
	if err := run(true, ".", "../../../cmd/gorun/THIRD_PARTY_LICENSES"); err != nil {
		t.Error(err)
	}
	script, err := os.ReadFile("../build.sh")
	if err != nil || !strings.Contains(string(script), `-tags "`+tags+`,gorund$3" `) {
		t.Errorf("build.sh builds with other tags than %s: %v", tags, err)
	}
}

// TestReport: texts occur once, copied code brings its own notice, and a module without a licence is refused.
func TestReport(t *testing.T) {
	mit := "Permission is hereby granted, free of charge, to any person\nobtaining a copy\nThe above copyright notice and this permission notice"
	make := func(name string, files map[string]string) module {
		root := t.TempDir()
		for file, text := range files {
			os.MkdirAll(filepath.Join(root, filepath.Dir(file)), 0o755)
			must.Do(t, os.WriteFile(filepath.Join(root, file), []byte(text), 0o644))
		}
		return module{name: name, version: "v1.0.0", source: "https://" + name, root: root, dirs: map[string]bool{filepath.Join(root, "a", "b"): true}}
	}
	one := make("one", map[string]string{"LICENSE": mit + "\r\n", "a/NOTICE": "Parts are of A.", "a/b/x.go": "", "c/LICENSE": "of what is not linked"})
	two := make("two", map[string]string{"LICENCE.md": mit, "a/b/license.go": "package b"})
	text, err := report([]module{one, two})
	must.Do(t, err)
	line := strings.Repeat("=", 80)
	want := head + "one v1.0.0\n  MIT\n  https://one\ntwo v1.0.0\n  MIT\n  https://two\n\n" +
		"\n" + line + "\none v1.0.0: LICENSE\ntwo v1.0.0: LICENCE.md\n" + line + "\n\n" + mit + "\n" +
		"\n" + line + "\none v1.0.0: a/NOTICE\n" + line + "\n\nParts are of A.\n"
	if string(text) != want {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
	none := make("none", map[string]string{"LICENSE": "All rights reserved.", "a/b/x.go": ""})
	if _, err := report([]module{one, none}); err == nil || !strings.Contains(err.Error(), "none v1.0.0") {
		t.Errorf("a module without a licence: %v", err)
	}
}
