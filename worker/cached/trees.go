package cached

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// Trees and Files are the directories, in a directory of programs, of trees that launchers have sent and of what their files
// hold: hard links to the same contents. Pythons has the environments, and the uv, from which a launcher sends trees. Each of all
// these was used last at the time of its directory.
const (
	Trees   = "trees"
	Files   = "files"
	Pythons = "python"
)

// Sent is the time of everything that was sent. What has another was written on this host.
var Sent = time.Unix(1_000_000_000, 0)

// listTrees returns the trees in a directory of the user's, those used last first.
func listTrees(dir string) (all []Program) {
	all = list(filepath.Join(dir, Trees), filepath.Join(dir, Pythons))
	for i := range all {
		all[i].Tree = true
	}
	return all
}

// measure finds out how large a tree is, and whether ranks have written into it.
func (p *Program) measure() {
	sent := filepath.Base(filepath.Dir(p.Dir)) == Trees
	filepath.WalkDir(p.Dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() && e.Name() == "__pycache__" {
			return fs.SkipDir
		}
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			p.Size += info.Size()
			p.Written = p.Written || sent && !info.ModTime().Equal(Sent)
		}
		return nil
	})
}

func links(info fs.FileInfo) uint64 {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(stat.Nlink)
	}
	return 0
}

// LimitTrees removes trees of a directory that nobody has used for a while, but for those that ranks have written into.
func LimitTrees(dir string, now time.Time) {
	if limit(listTrees(dir), now) {
		sweepFiles(dir, now)
	}
}

// Keep marks trees as used now and then until ctx ends: they count as used when they were marked last.
func Keep(ctx context.Context, dirs ...string) {
	tick := time.NewTicker(MarkInterval)
	defer tick.Stop()
	for {
		select {
		case now := <-tick.C:
			for _, dir := range dirs {
				os.Chtimes(dir, now, now)
			}
		case <-ctx.Done():
			return
		}
	}
}

// sweepFiles removes contents that are in no tree, unless some have come lately: their tree may not be there yet.
func sweepFiles(dir string, now time.Time) {
	if info, err := os.Stat(filepath.Join(dir, Files)); err != nil || now.Sub(info.ModTime()) < uploadTimeout {
		return
	}
	names, _ := filepath.Glob(filepath.Join(dir, Files, "*", "*"))
	for _, name := range names {
		if info, err := os.Lstat(name); err == nil && links(info) == 1 {
			os.Remove(name)
		}
	}
}
