package main

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"gorun/contrib/e2e/e2etest"
	"gorun/contrib/must"
)

func TestMain(m *testing.M) {
	// Scripts wait most of the time. A user's -parallel is read later, and counts.
	if err := flag.Set("test.parallel", "5"); err != nil {
		panic(err)
	}
	// Ranks of gorun bench are /proc/self/exe.
	testscript.Main(m, map[string]func(){"gorun": main, "horovodrun": main, "exe": main})
}

// TestScripts runs the command line as a user does; each file of testdata/script is a session.
func TestScripts(t *testing.T) {
	e2etest.DependsOn(t, "contrib/python")
	binding, err := filepath.Abs("../../contrib/python")
	must.Do(t, err)
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		UpdateScripts:       os.Getenv("UPDATE_SCRIPTS") != "",
		Setup: func(env *testscript.Env) error {
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("GORUN_ALLOW_ROOT", "1")
			env.Setenv("BINDING", binding)                               // Python's, which the binary of the tests does not carry
			env.Setenv("BIN", filepath.SplitList(env.Getenv("PATH"))[0]) // for scripts with a PATH of their own
			// Every process that the race detector looks at sleeps a second before it ends, and a job has three in a row.
			env.Setenv("GORACE", "atexit_sleep_ms=20")
			return nil
		},
	})
}
