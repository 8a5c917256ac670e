package worker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

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
	if d.files, err = openStore(d.cfg.Env); err != nil {
		return err
	}
	var names []string
	from := source{d.files, key, d.inbox.messages, d.out}
	if d.job.Tree != nil {
		if d.tree, err = from.tree(ctx, d.job.Tree, d.job.ID); err != nil {
			return err
		}
		names = append(names, filepath.Base(d.tree))
	}
	if d.job.Python {
		env := slices.Concat(rankenv.Machine(d.cfg.Env), d.job.Env)
		if d.venv, _, err = from.python(ctx, d.job.Argv[0], env); err != nil {
			return err
		}
		names = append(names, filepath.Base(d.venv))
	}
	d.loop.Go(func() { d.files.Tend(work, names) })
	return nil
}

func openStore(env []string) (*shipped.Store, error) {
	return shipped.Open(func(name string) string {
		value, _ := rankenv.Lookup(env, name)
		return value
	})
}

// source is what gives this host what a job brings: its launcher, and hosts of the job by a key.
type source struct {
	store *shipped.Store
	key   []byte // nil if there are no other hosts
	in    <-chan wire.Message
	out   *wire.Writer
}

// tree gets a tree for a job, unless a host that shares this one's home has done so: the job's ranks may run in it, and have changed it.
func (s source) tree(ctx context.Context, t *wire.Tree, job string) (dir string, err error) {
	if err := t.Check(); err != nil {
		return "", err
	}
	if name := t.Name(); job != "" && s.store.Made(name, job) {
		return s.store.Dir(name), s.store.Mark(name)
	}
	if err := s.store.Get(ctx, t, s.key, s.in, s.out); err != nil {
		return "", fmt.Errorf("get the files of %s: %w", t.Root, err)
	}
	dir, changed, err := s.store.Build(t, job)
	for _, name := range changed {
		s.out.Write(&wire.Log{Text: "an earlier job has changed a file of the program: it is kept as " + name})
	}
	return dir, err
}

// versioned is what a program is called that names the version of its Python.
var versioned = regexp.MustCompile(`^python3\.\d+$`)

// python gets the environment for the Python that a program names, or else for python3, and returns what decides which packages suit
// that Python.
func (s source) python(ctx context.Context, program string, env []string) (dir string, p wire.Platform, err error) {
	name := "python3"
	if versioned.MatchString(program) {
		name = program
	}
	file, err := proc.Find(name, env, "/")
	if err != nil {
		return "", p, &shipped.PythonError{Text: fmt.Sprintf("get the environment of Python: %v", err), Hint: "hosts need a Python, of the same version on all: apt install python3, or dnf install python3"}
	}
	p, base, err := python.Ask(ctx, file, env)
	if err != nil {
		return "", p, err
	}
	if dir, err = s.store.GetPython(ctx, wire.AskPython{Path: file, Platform: p}, base, s.key, s.in, s.out); err != nil {
		err = fmt.Errorf("get the environment of Python: %w", err)
	}
	return dir, p, err
}

// Shipped keeps on this host what the launchers of detached jobs give their hosts. Env is that of a resident daemon.
type Shipped struct{ Env func() []string }

// Fetch gets the tree of a request, and the environment of its program's Python, from the process of its user.
func (s Shipped) Fetch(ctx context.Context, r *wire.Detach, in <-chan wire.Message, out *wire.Writer) error {
	if r.Tree == nil && r.Python == "" {
		return nil
	}
	store, err := openStore(s.Env())
	if err != nil {
		return err
	}
	defer store.Close()
	from := source{store: store, in: in, out: out}
	if r.Tree != nil {
		if _, err := from.tree(ctx, r.Tree, ""); err != nil {
			return err
		}
	}
	if r.Python != "" {
		env := slices.Concat(rankenv.Machine(s.Env()), r.Env)
		r.Packages, r.Platform, err = from.python(ctx, r.Python, env)
	}
	return err
}

// Place returns a request in which paths of its tree, and that of its environment, are those on this host. They are also if there is an
// error because something of it is missing. A tree that is here stays as it is.
func (s Shipped) Place(r *wire.Detach) (*wire.Detach, error) {
	if r.Tree == nil && r.Packages == "" {
		return r, nil
	}
	store, err := openStore(s.Env())
	if err != nil {
		return r, err
	}
	defer store.Close()
	here := *r
	if r.Packages != "" {
		name := filepath.Base(r.Packages) // another host had it elsewhere
		if here.Packages = store.Dir(name); shipped.ReadPython(here.Packages) == nil {
			err = fmt.Errorf("the environment of Python is not here: %s", here.Packages)
		}
		store.Mark(name)
	}
	if r.Tree == nil {
		return &here, err
	}
	name := r.Tree.Name()
	dir := store.Dir(name)
	if store.Made(name, "") { // ranks may run in it, and have changed it
		err = errors.Join(err, store.Mark(name))
	} else {
		beginErr := store.Begin(r.Tree)
		_, _, buildErr := store.Build(r.Tree, "")
		err = errors.Join(err, beginErr, buildErr)
	}
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	here.Tree = &wire.Tree{Root: dir, Files: r.Tree.Files}
	here.Args, here.Dir = r.Tree.At(dir, r.Args, r.Dir)
	here.Env, here.Programs = r.Tree.EnvAt(dir, r.Env), nil
	for _, p := range r.Programs {
		moved := wire.SentProgram{Env: r.Tree.EnvAt(dir, p.Env)}
		moved.Argv, moved.Dir = r.Tree.At(dir, p.Argv, p.Dir)
		here.Programs = append(here.Programs, moved)
	}
	if strings.HasPrefix(here.Dir, dir+"/") {
		os.MkdirAll(here.Dir, 0o700) // it may have no files
	} else if _, err := os.Stat(here.Dir); err != nil {
		here.Dir = dir // it is on the user's machine alone
	}
	return &here, err
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
