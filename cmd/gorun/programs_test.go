package main

import (
	"strings"
	"testing"
)

func TestPairs(t *testing.T) {
	if err := new(pairs).Set("btl"); err == nil || err.Error() != "takes a name and a value" {
		t.Errorf("one word: %v", err)
	}
}

func TestVariables(t *testing.T) {
	environ := []string{"NCCL_DEBUG=INFO", "NCCL_ALGO=Ring", "SLURM_JOB_ID=7", "EMPTY="}
	for _, tt := range []struct {
		flags, want string
		notes       int
	}{
		{"-x A=1 -x B=2,3", "A=1 B=2,3", 0},
		{"-x NCCL_*", "NCCL_DEBUG=INFO NCCL_ALGO=Ring", 0},
		{"-x SLURM_JOB_ID -x EMPTY", "SLURM_JOB_ID=7 EMPTY=", 0},
		{"-x NOT_THERE", "", 1},
		{"-genv A 1 -env B x=y", "A=1 B=x=y", 0},
		{"-env B 1 -genv B 2", "B=2 B=1", 0}, // the last one counts
		{"-genvlist NCCL_DEBUG,EMPTY", "NCCL_DEBUG=INFO EMPTY=", 0},
		{"-envlist NCCL_DEBUG,NOT_THERE -genvlist EMPTY", "EMPTY= NCCL_DEBUG=INFO", 1},
	} {
		err := parse(t, append(append([]string{"gorun"}, strings.Fields(tt.flags)...), "true"), func(o *jobFlags) {
			common, more, err := hydraVariables(o.genvList, o.genv, environ)
			if err != nil {
				t.Errorf("%s: %v", tt.flags, err)
			}
			env, notes, err := readVariables(o, environ)
			env, notes = append(common, env...), append(more, notes...)
			if got := strings.Join(env, " "); err != nil || got != tt.want || len(notes) != tt.notes {
				t.Errorf("%s: %v, %q, notes %q; want %q", tt.flags, err, got, notes, tt.want)
			}
		})
		if err != nil {
			t.Errorf("%s: %v", tt.flags, err)
		}
	}
}

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
