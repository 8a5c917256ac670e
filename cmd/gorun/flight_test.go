package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gorun/launcher"
	"gorun/launcher/why"
)

// TestRecordTo: a recording is named once it is there; one that cannot be written is not named, and the user reads why
// once.
func TestRecordTo(t *testing.T) {
	dir := t.TempDir()
	for name, tt := range map[string]struct{ dir, want string }{
		"written": {dir, "gorun: the last operations of the ranks are in " + filepath.Join(dir, "flight.jsonl") + ": gorun why "},
		"not":     {filepath.Join(dir, "missing"), "gorun: what the ranks did last could not be recorded: open "},
	} {
		for range 2 { // recordings of one job
			var notes []string
			spec := &launcher.Spec{Note: func(format string, args ...any) {
				notes = append(notes, fmt.Sprintf(format, args...))
				if _, err := os.Stat(filepath.Join(tt.dir, "flight.jsonl")); (err == nil) != (name == "written") {
					t.Errorf("%s: %v when the user reads %s", name, err, notes)
				}
			}}
			r := &recorder{dir: tt.dir, note: spec.Note}
			r.keep(&why.Recording{})
			r.keep(&why.Recording{})
			if len(notes) != 1 || !strings.HasPrefix(notes[0], tt.want) {
				t.Errorf("%s: the user reads %q", name, notes)
			}
			notes = nil
			stop := recordTo(spec, tt.dir, nil)
			spec.Record(&why.Recording{})
			stop()
			if len(notes) != 1 || !strings.HasPrefix(notes[0], tt.want) {
				t.Errorf("%s: the user reads %q", name, notes)
			}
		}
	}
}
