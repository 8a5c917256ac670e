package main

import (
	"slices"
	"testing"

	"gorun/launcher"
	"gorun/rendezvous/wire"
)

// TestEnvElsewhere: with --env-none a launcher elsewhere gets the variables that stand for flags.
func TestEnvElsewhere(t *testing.T) {
	environ := []string{"SHELL=/bin/sh", "HOROVOD_START_TIMEOUT=9", "MPIEXEC_TIMEOUT=7", "GORUN_ENCRYPT=1", "GORUN_CLUSTER=here"}
	o := &jobFlags{}
	o.envNone = true
	if got, want := o.envElsewhere(environ), []string{"HOROVOD_START_TIMEOUT=9", "MPIEXEC_TIMEOUT=7", "GORUN_ENCRYPT=1"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestAsSent: a launcher elsewhere runs what its user's machine found, unless a file names other programs there.
func TestAsSent(t *testing.T) {
	r := &wire.Detach{Programs: []wire.SentProgram{{Argv: []string{"python3", "/proj/train.py"}, Env: []string{"A=file"}, Dir: "/proj"}}}
	programs := []program{{Program: launcher.Program{Ranks: 2, Argv: []string{"v/python3", "train.py"}, Dir: "/link"}}}
	if err := asSent(r, programs); err != nil || programs[0].Ranks != 2 || programs[0].Argv[1] != "/proj/train.py" || programs[0].Env[0] != "A=file" || programs[0].Dir != "/proj" {
		t.Errorf("%+v, %v", programs[0], err)
	}
	if err := asSent(&wire.Detach{}, programs); err != nil || programs[0].Argv[1] != "/proj/train.py" {
		t.Errorf("an older version's request: %+v, %v", programs[0], err)
	}
	if err := asSent(r, append(programs, program{})); err == nil || err.Error() != "1 programs were sent, of 2" {
		t.Errorf("%v", err)
	}
}
