package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"gorun/launcher"
	"gorun/launcher/output"
	"gorun/launcher/pyenv"
	"gorun/worker/cached"
)

// packages returns what --python names, nil without it. A Python that a program names by its path is that of the environment then.
// The notes are for the user.
func (o *jobFlags) packages(ctx context.Context, programs []program) (*pyenv.Source, []string, error) {
	if o.python == "" {
		return nil, nil, nil
	}
	source, notes, err := pyenv.Open(ctx, o.python, os.Getenv, o.ships())
	if err != nil {
		return nil, nil, o.wrongPackages(err)
	}
	for i, note := range notes {
		notes[i] = "gorun: note: --python: " + note
	}
	for _, p := range programs {
		name := p.Argv[0]
		if !filepath.IsAbs(name) {
			name = filepath.Join(p.Dir, name)
		}
		if strings.Contains(p.Argv[0], "/") && interpreter(name) {
			p.Argv[0] = filepath.Base(name)
		}
	}
	return source, notes, nil
}

func (o *jobFlags) wrongPackages(err error) error {
	hint := ""
	if advice, ok := errors.AsType[*pyenv.Error](err); ok {
		hint = advice.NextStep()
	}
	return &usageError{fmt.Errorf("--python %s: %w", o.python, err), hint}
}

// makePackages has hosts of a job get an environment, if packages is not nil. The job's context ends if none can be made: finish then
// returns why, in place of the job's error.
func (o *jobFlags) makePackages(ctx context.Context, spec *launcher.Spec, packages *pyenv.Source, hosts int, mux *output.Mux) (job context.Context, finish func(error) error, err error) {
	if packages == nil {
		return ctx, func(err error) error { return err }, nil
	}
	cache, err := cached.Open(os.Getenv, func(dir string) error { return os.MkdirAll(filepath.Join(dir, cached.Pythons), 0o700) })
	if err != nil {
		return nil, nil, fmt.Errorf("--python %s: %w", o.python, err)
	}
	cached.LimitTrees(cache, time.Now())
	maker := pyenv.New(packages, filepath.Join(cache, cached.Pythons), hosts, os.Environ(), mux.Note)
	spec.Python = maker
	ctx, cancel := context.WithCancel(ctx)
	var making sync.WaitGroup
	var failed error
	making.Go(func() {
		if err := maker.Run(ctx); err != nil && ctx.Err() == nil {
			failed = o.wrongPackages(err)
			cancel()
		}
		maker.Keep(ctx)
	})
	return ctx, func(err error) error {
		cancel()
		making.Wait()
		if failed != nil {
			return failed
		}
		return err
	}, nil
}
