package main

import (
	"slices"
	"strings"
	"testing"

	"gorun/launcher"
	"gorun/rendezvous/wire"
)

// TestWordsElsewhere: a launcher on another host finds the programs of an environment, and runs ranks in the tree though links led there;
// values of flags that read the same stay.
func TestWordsElsewhere(t *testing.T) {
	tree := &wire.Tree{Root: "/proj", Files: []wire.TreeFile{{Path: "train.py"}}}
	prog := func(dir string, words int, argv ...string) program {
		return program{Program: launcher.Program{Argv: argv, Dir: dir}, words: words}
	}
	with := func(p program, env ...string) program { p.Env = env; return p }
	for _, tc := range []struct {
		line     string
		args     int // how many words follow the flags
		r        wire.Detach
		programs []program
		want     string
	}{
		{"gorun --rank-wrapper v/torchrun v/torchrun train.py", 2, wire.Detach{Python: "torchrun"}, []program{prog("/x", 2, "torchrun", "train.py")},
			"gorun --rank-wrapper v/torchrun torchrun train.py"},
		{"gorun v/python a : -np 2 -x A=v/python v/python b", 8, wire.Detach{Python: "python"}, []program{prog("/x", 2, "python", "a"), prog("/x", 2, "python", "b")},
			"gorun python a : -np 2 -x A=v/python python b"},
		{"gorun -m train", 1, wire.Detach{Python: "python3"}, []program{prog("/x", 1, "python3", "-m", "train")}, "gorun -m train"},
		{"gorun --wdir /link -- ./a", 2, wire.Detach{Dir: "/home", Tree: tree}, []program{prog("/proj", 1, "./a")}, "gorun --wdir /link --wdir=/proj -- ./a"},
		{"gorun ./a : -m b", 4, wire.Detach{Dir: "/proj/runs", Tree: tree}, []program{prog("/proj", 1, "./a"), prog("/proj/runs", 1, "python3", "-m", "b")},
			"gorun --wdir=.. ./a : -m --wdir=. b"},
		{"gorun -genv PYTHONPATH /proj/lib -- ./a : ./b", 4, wire.Detach{Dir: "/proj", Tree: tree, Variables: []string{"PYTHONPATH=/file"}},
			[]program{with(prog("/proj", 1, "./a"), "PYTHONPATH=/file", "PYTHONPATH=/proj/lib"), with(prog("/proj", 1, "./b"), "PYTHONPATH=/file")},
			"gorun -genv PYTHONPATH /proj/lib --env PYTHONPATH=/proj/lib --wdir=. -- ./a : --wdir=. ./b"},
		{"gorun --configfile f", 2, wire.Detach{Dir: "/proj", Tree: tree}, []program{prog("/proj", 1, "./a")}, "gorun --configfile f"},
	} {
		words := strings.Fields(tc.line)
		o := &jobFlags{}
		if o.args = words[len(words)-tc.args:]; strings.Contains(tc.line, "configfile") {
			o.args = []string{"./a"}
		}
		tc.r.Args = words
		at := o.begins(words, tc.programs)
		if got := strings.Join(wordsElsewhere(tc.r, at, tc.programs), " "); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.line, got, tc.want)
		}
		if !slices.Equal(words, strings.Fields(tc.line)) {
			t.Errorf("the words of this command have become %q", words)
		}
	}
}

// TestEnvElsewhere: with --env-none a launcher elsewhere gets the variables of -x, and those that stand for flags, but not those of a file,
// which travel by themselves.
func TestEnvElsewhere(t *testing.T) {
	environ := []string{"SHELL=/bin/sh", "HOROVOD_START_TIMEOUT=9", "MPIEXEC_TIMEOUT=7", "GORUN_ENCRYPT=1", "GORUN_CLUSTER=here"}
	o, p := new(jobFlags), program{fromFile: []string{"F=1"}}
	o.envNone, p.Env = true, []string{"F=1", "A=2"}
	if got, want := o.envElsewhere(environ, p), []string{"A=2", "HOROVOD_START_TIMEOUT=9", "MPIEXEC_TIMEOUT=7", "GORUN_ENCRYPT=1"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
