package main

import (
	"context"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"gorun/contrib/must"
	"gorun/rendezvous/wire"
	"gorun/worker/cached"
)

// TestKeepGiven: what a launcher has from its daemon counts as used, hours before it gets slots.
func TestKeepGiven(t *testing.T) {
	tree, env := t.TempDir(), t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		defer keepGiven(context.Background(), &wire.Detach{Tree: &wire.Tree{Root: tree}, Packages: env})()
		time.Sleep(3*cached.MarkInterval + time.Minute)
		for _, dir := range []string{tree, env} {
			info, err := os.Stat(dir)
			must.Do(t, err)
			if age := time.Since(info.ModTime()); age != time.Minute {
				t.Errorf("%s was marked %v ago", dir, age)
			}
		}
	})
}
