package worker

import (
	"context"
	"fmt"
	"net"
	"time"

	"gorun/worker/rankenv"
	"gorun/worker/shipped"
)

// markInterval is how often a daemon marks the tree of its job as used, so that gorun clean keeps it.
const markInterval = time.Hour

// getTree has the files of the job's tree come to this host.
func (d *daemon) getTree(ctx context.Context) error {
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
	if d.tree, err = d.files.Build(t); err != nil {
		return err
	}
	d.loop.Go(func() {
		tick := time.NewTicker(markInterval)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				d.files.Mark(t)
			case <-ctx.Done():
				return
			}
		}
	})
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
