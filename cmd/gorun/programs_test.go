package main

import (
	"testing"
)

// FuzzRanks: a list names ranks that exist, or is refused.
func FuzzRanks(f *testing.F) {
	f.Add("0,2-3", 4)
	f.Add("7-", 8)
	f.Fuzz(func(t *testing.T, list string, ranks int) {
		ranks = 1 + max(0, ranks%1000)
		got, err := parseRanks(list, ranks)
		for r := range got {
			if r < 0 || r >= ranks {
				t.Fatalf("%q of %d gave %d (%v)", list, ranks, r, err)
			}
		}
	})
}

// TestInterpreter: a script whose name begins like Python's is the user's program.
func TestInterpreter(t *testing.T) {
	for name, want := range map[string]bool{"/usr/bin/python": true, "/usr/bin/python3": true, "/opt/python3.11": true, "/home/me/python_job.sh": false, "/home/me/python3.py": false} {
		if interpreter(name) != want {
			t.Errorf("%s is an interpreter: %v", name, !want)
		}
	}
}
