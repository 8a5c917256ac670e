package main

import (
	"reflect"
	"strings"
	"testing"
)

func TestSplitWords(t *testing.T) {
	for in, want := range map[string][]string{
		"":                           nil,
		"  a  b ":                    {"a", "b"},
		`a 'b c' "d e"f`:             {"a", "b c", "d ef"},
		`'' "" x`:                    {"", "", "x"},
		`a\ b "c\"d" 'e\f'`:          {"a b", `c"d`, `e\f`},
		"numactl -N {local_rank} --": {"numactl", "-N", "{local_rank}", "--"},
	} {
		if got, err := splitWords(in); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: got %q, %v; want %q", in, got, err, want)
		}
	}
	for in, want := range map[string]string{`'a`: "' without an end", `"a`: "without an end", "a\x00b": "holds a zero byte"} {
		if got, err := splitWords(in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %q, %v, want an error with %q", in, got, err, want)
		}
	}
}

func TestPairs(t *testing.T) {
	if err := new(pairs).Set("btl"); err == nil || err.Error() != "takes a name and a value" {
		t.Errorf("one word: %v", err)
	}
}

// FuzzSplitWords: quoted words are split into the same words again.
func FuzzSplitWords(f *testing.F) {
	f.Add("a", "b c'\"\\")
	f.Fuzz(func(t *testing.T, a, b string) {
		splitWords(a)
		if strings.ContainsRune(a+b, 0) {
			return
		}
		quote := func(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
		if got, err := splitWords(quote(a) + " " + quote(b)); err != nil || !reflect.DeepEqual(got, []string{a, b}) {
			t.Errorf("got %q, %v; want %q", got, err, []string{a, b})
		}
	})
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
