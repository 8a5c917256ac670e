package worker

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"regexp"
	"slices"

	"gorun/rendezvous/wire"
	"gorun/worker/proc"
	"gorun/worker/python"
	"gorun/worker/rankenv"
	"gorun/worker/shipped"
)

// getFiles has the files of the job's tree and its environment of Python come to this host, unless ctx ends before.
func (d *daemon) getFiles(ctx, work context.Context) error {
	if d.job.Tree == nil && !d.job.Python {
		return nil
	}
	key, err := d.net.Key(shipped.Purpose)
	if err != nil {
		return err
	}
	getenv := func(name string) string {
		value, _ := rankenv.Lookup(d.cfg.Env, name)
		return value
	}
	if d.files, err = shipped.Open(getenv); err != nil {
		return err
	}
	var names []string
	if d.job.Tree != nil {
		if err := d.getTree(ctx, key); err != nil {
			return err
		}
		names = append(names, filepath.Base(d.tree))
	}
	if d.job.Python {
		if err := d.getPython(ctx, key); err != nil {
			return err
		}
		names = append(names, filepath.Base(d.venv))
	}
	d.loop.Go(func() { d.files.Tend(work, names) })
	return nil
}

func (d *daemon) getTree(ctx context.Context, key []byte) error {
	t := d.job.Tree
	if err := t.Check(); err != nil {
		return err
	}
	if err := d.files.Get(ctx, t, key, d.inbox.messages, d.out); err != nil {
		return fmt.Errorf("get the files of %s: %w", t.Root, err)
	}
	dir, changed, err := d.files.Build(t)
	if err != nil {
		return err
	}
	d.tree = dir
	for _, name := range changed {
		d.out.Write(&wire.Log{Text: "an earlier job has changed a file of the program: it is kept as " + name})
	}
	return nil
}

// versioned is what a program is called that names the version of its Python.
var versioned = regexp.MustCompile(`^python3\.\d+$`)

// getPython gets the environment for the Python that the program names, or else for python3.
func (d *daemon) getPython(ctx context.Context, key []byte) error {
	name, env := "python3", slices.Concat(rankenv.Machine(d.cfg.Env), d.job.Env)
	if versioned.MatchString(d.job.Argv[0]) {
		name = d.job.Argv[0]
	}
	file, err := proc.Find(name, env, "/")
	if err != nil {
		return &shipped.PythonError{Text: fmt.Sprintf("get the environment of Python: %v", err), Hint: "hosts need a Python, of the same version on all: apt install python3, or dnf install python3"}
	}
	platform, base, err := python.Ask(ctx, file, env)
	if err != nil {
		return err
	}
	ask := wire.AskPython{Path: file, Platform: platform}
	if d.venv, err = d.files.GetPython(ctx, ask, base, key, d.inbox.messages, d.out); err != nil {
		return fmt.Errorf("get the environment of Python: %w", err)
	}
	return nil
}

// serveTree gives hosts of the job the files that this one has for it, and returns the port.
func (d *daemon) serveTree(ctx context.Context) (port int, err error) {
	if d.job.Tree == nil && !d.job.Python || d.job.Alone {
		return 0, nil
	}
	key, err := d.net.Key(shipped.Purpose)
	if err != nil {
		return 0, err
	}
	l, err := d.net.ListenFor(ctx, "files")
	if err != nil {
		return 0, err
	}
	d.loop.Go(func() { d.files.Serve(ctx, l, d.job.Tree, d.venv, key) })
	return l.Addr().(*net.TCPAddr).Port, nil
}
