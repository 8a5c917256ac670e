package main

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
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

// TestEventsInREADME: programs are written by the README's table, so it has every event and field.
func TestEventsInREADME(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ = bytes.Cut(text, []byte("### Events"))
	table, _, _ := strings.Cut(string(text), "\n## ")
	for name, event := range map[string]any{"job": jobEvent{}, "started": startedEvent{}, "exited": exitedEvent{}, "edge": edgeEvent{}, "end": endEvent{}} {
		row := regexp.MustCompile("(?m)^\\| `" + name + "`.*$").FindString(table)
		for field := range reflect.TypeOf(event).Fields() {
			key, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if key != "event" && !strings.Contains(row, "`"+key+"`") {
				t.Errorf("event %s: %s is not in %q", name, key, row)
			}
		}
	}
}
