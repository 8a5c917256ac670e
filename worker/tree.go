package worker

import (
	"context"
	"fmt"
	"net"

	"gorun/rendezvous/wire"
	"gorun/worker/rankenv"
	"gorun/worker/shipped"
)

// getTree has the files of the job's tree come to this host, unless ctx ends before.
func (d *daemon) getTree(ctx, work context.Context) error {
	t := d.job.Tree
	if t == nil {
		return nil
	}
	if err := t.Check(); err != nil {
		return err
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
	d.loop.Go(func() { d.files.Tend(work, t) })
	return nil
}

// serveTree gives hosts of the job the files of its tree, and returns the port.
func (d *daemon) serveTree(ctx context.Context) (port int, err error) {
	if d.job.Tree == nil || d.job.Alone {
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
	d.loop.Go(func() { d.files.Serve(ctx, l, d.job.Tree, key) })
	return l.Addr().(*net.TCPAddr).Port, nil
}
