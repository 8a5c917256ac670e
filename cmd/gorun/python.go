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

	"gorun/launcher/pyenv"
	"gorun/launcher/talk"
	"gorun/rendezvous/wire"
	"gorun/worker/cached"
	"gorun/worker/shipped"
)

// packages returns what --python names, nil without it and for a launcher that a daemon has started. A Python that a program names by
// its path is that of the environment then. The notes are for the user.
func (o *jobFlags) packages(ctx context.Context, programs []program) (*pyenv.Source, []string, error) {
	if o.python == "" {
		return nil, nil, nil
	}
	var source *pyenv.Source
	var notes []string
	if detachedOf(ctx).Request() == nil { // else its user has read them
		var err error
		if source, notes, err = pyenv.Open(ctx, o.python, os.Getenv, o.ships()); err != nil {
			return nil, nil, o.wrongPackages(err)
		}
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

// makePackages returns what gives hosts of a job their environment, nil if packages is and no daemon has the environment for this
// launcher. The job's context ends if none can be made: finish then returns why, in place of the job's error.
func (o *jobFlags) makePackages(ctx context.Context, packages *pyenv.Source, hosts int, note func(format string, args ...any)) (given talk.Pythons, job context.Context, finish func(error) error, err error) {
	var maker *pyenv.Maker
	if r := detachedOf(ctx).Request(); r != nil && r.Packages != "" {
		given = pyenv.Made(shipped.ReadPython(r.Packages), r.Platform)
	} else if packages != nil {
		cache, err := cached.Open(os.Getenv, func(dir string) error { return os.MkdirAll(filepath.Join(dir, cached.Pythons), 0o700) })
		if err != nil {
			return nil, nil, nil, fmt.Errorf("--python %s: %w", o.python, err)
		}
		cached.LimitTrees(cache, time.Now())
		maker = pyenv.New(packages, filepath.Join(cache, cached.Pythons), hosts, os.Environ(), note)
		given = maker
	}
	ctx, cancel := context.WithCancel(ctx)
	var making sync.WaitGroup
	var failed error
	making.Go(func() {
		if maker != nil {
			if err := maker.Run(ctx); err != nil && ctx.Err() == nil {
				failed = o.wrongPackages(err)
				cancel()
			}
			cached.Keep(ctx, maker.Dir()) // hosts may ask for it until the job ends
		}
	})
	return given, ctx, func(err error) error {
		cancel()
		making.Wait()
		if failed != nil {
			return failed
		}
		return err
	}, nil
}

// keepGiven marks what a daemon has for a launcher as used until stop is called.
func keepGiven(ctx context.Context, r *wire.Detach) (stop func()) {
	var dirs []string
	if r != nil && r.Tree != nil {
		dirs = append(dirs, r.Tree.Root)
	}
	if r != nil && r.Packages != "" {
		dirs = append(dirs, r.Packages)
	}
	ctx, cancel := context.WithCancel(ctx)
	var keeping sync.WaitGroup
	keeping.Go(func() { cached.Keep(ctx, dirs...) })
	return func() {
		cancel()
		keeping.Wait()
	}
}
