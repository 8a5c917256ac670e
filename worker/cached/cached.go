// Package cached manages the programs that launchers have uploaded to this host by ssh.
//
// Each lies in a directory that is named after its hash, in the user's cache or, where that does not work, in one of
// the shared directories that launcher/ssh tries. A daemon that runs such a program marks it as used, at its start and
// every hour, because hosts may share a home: a program that another host runs must stay. At its start it also removes
// what no one needs, so that a cache stays small by itself. Clean removes more, for gorun clean.
package cached

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// keepLatest is how many programs a cache keeps by itself: those used last.
	keepLatest = 3
	// keepUnused is how long it keeps the others, and keepWritten the trees that ranks have written into.
	keepUnused  = 24 * time.Hour
	keepWritten = 30 * 24 * time.Hour
	// MarkInterval is how often a daemon marks its program, and the tree of its job. One that was marked within markedTimeout may be in use, if
	// only on another host.
	MarkInterval  = time.Hour
	markedTimeout = 2 * MarkInterval
	// uploadTimeout is how long an upload may take. A file that is older was left by a loss of power.
	uploadTimeout = time.Hour
)

// Program is an uploaded program, or a tree of files of one.
type Program struct {
	Dir     string    `json:"dir"`
	Size    int64     `json:"size"`
	Used    time.Time `json:"used"`   // when a job last used it, as far as is known
	InUse   bool      `json:"in_use"` // on this host
	Removed bool      `json:"removed"`
	Tree    bool      `json:"tree"`    // files of a user's program, rather than gorun
	Written bool      `json:"written"` // ranks have written into the tree
}

// Hash returns the beginning of the hash that names the program.
func (p Program) Hash() string {
	hash := filepath.Base(p.Dir)
	return hash[:min(12, len(hash))]
}

// Kind returns what comes before the hash of a tree, so that people tell it from gorun.
func (p Program) Kind() string {
	if p.Tree {
		return "files "
	}
	return ""
}

// MayRun reports whether the program may be in use, or about to be.
func (p Program) MayRun(now time.Time) bool {
	return p.InUse || now.Sub(p.Used) < markedTimeout
}

var isHash = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[0-9a-f]{64}$`) })

// Places returns the directories of programs: in the user's cache, and in shared directories.
func Places(getenv func(name string) string) (dirs []string) {
	if cache := getenv("XDG_CACHE_HOME"); filepath.IsAbs(cache) {
		dirs = append(dirs, filepath.Join(cache, "gorun"))
	} else if home := getenv("HOME"); filepath.IsAbs(home) {
		dirs = append(dirs, filepath.Join(home, ".cache", "gorun"))
	}
	own := fmt.Sprintf("gorun-%d", os.Getuid())
	for _, shared := range []string{"/tmp", "/var/tmp", "/dev/shm"} {
		dirs = append(dirs, filepath.Join(shared, own))
	}
	return dirs
}

// Open returns the first of the user's directories that takes what try puts there. It makes a directory that is not there, and passes
// over those of others and those that others may write to.
func Open(getenv func(name string) string, try func(dir string) error) (dir string, err error) {
	var errs error
	for _, dir := range Places(getenv) {
		err := os.MkdirAll(dir, 0o700)
		if info, own := Own(dir); err == nil && (!own || info.Mode().Perm()&0o022 != 0) {
			err = fmt.Errorf("open cache %s: others may write there, or it is another user's", dir)
		}
		if err == nil {
			err = try(dir)
		}
		if err == nil {
			return dir, nil
		}
		errs = errors.Join(errs, err)
	}
	return "", errs
}

// List returns the programs in a directory of the user's, those used last first.
func List(dir string) (all []Program) {
	if _, own := Own(dir); own {
		all = list(dir)
	}
	for i := range all {
		p := &all[i]
		if info, err := os.Stat(filepath.Join(p.Dir, "gorun")); err == nil {
			p.Size = info.Size()
		}
	}
	return all
}

// list returns what is named by a hash in some directories, those used last first.
func list(dirs ...string) (all []Program) {
	for _, dir := range dirs {
		entries, _ := os.ReadDir(dir) // which may not be there
		for _, e := range entries {
			if isHash().MatchString(e.Name()) && e.IsDir() {
				at := filepath.Join(dir, e.Name())
				all = append(all, Program{Dir: at, Used: usedAt(at)})
			}
		}
	}
	slices.SortFunc(all, func(a, b Program) int { return b.Used.Compare(a.Used) })
	return all
}

// Own reports whether a directory is there, and the user's.
func Own(dir string) (info os.FileInfo, own bool) {
	info, err := os.Lstat(dir)
	if err != nil || !info.IsDir() {
		return nil, false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return info, ok && int(stat.Uid) == os.Geteuid()
}

// findRunning notes which programs this host executes.
func findRunning(all []Program) {
	links, _ := filepath.Glob("/proc/[0-9]*/exe")
	dirs, _ := filepath.Glob("/proc/[0-9]*/cwd")
	links = append(links, dirs...)
	for _, link := range links {
		exe, err := os.Readlink(link)
		if err != nil {
			continue // another user's, or it has ended
		}
		for i := range all {
			all[i].InUse = all[i].InUse || strings.HasPrefix(exe+"/", all[i].Dir+"/")
		}
	}
}

// Clean removes the programs that were not used for a time, and may not be in use. Without remove, it only finds them:
// their Removed is true all the same.
func Clean(dirs []string, unused time.Duration, now time.Time, remove bool) (all []Program) {
	for _, dir := range dirs {
		here := List(dir)
		if _, own := Own(dir); own {
			here = append(here, listTrees(dir)...)
		}
		findRunning(here)
		for i := range here {
			p := &here[i]
			if p.Tree {
				p.measure()
			}
			least := unused
			if p.Written && unused > 0 {
				least = max(unused, keepWritten) // the results may be somebody's
			}
			if p.MayRun(now) || now.Sub(p.Used) < least {
				continue
			}
			p.Removed = !remove || os.RemoveAll(p.Dir) == nil
		}
		if remove {
			sweepFiles(dir, now)
		}
		all = append(all, here...)
	}
	return all
}

// Tend marks the program of this process as used until ctx ends, if it was uploaded, and removes what its cache need
// not keep.
func Tend(ctx context.Context, exe string) {
	dir := filepath.Dir(exe)
	if filepath.Base(exe) != "gorun" || !isHash().MatchString(filepath.Base(dir)) {
		return
	}
	now := time.Now()
	os.Chtimes(dir, now, now)
	all := List(filepath.Dir(dir))
	for _, p := range all {
		left, _ := filepath.Glob(filepath.Join(p.Dir, ".up-*"))
		for _, file := range left {
			if info, err := os.Stat(file); err == nil && now.Sub(info.ModTime()) > uploadTimeout {
				os.Remove(file)
				os.Chtimes(p.Dir, p.Used, p.Used)
			}
		}
	}
	limit(all, now)
	Keep(ctx, dir)
}

// limit removes those of some programs, the ones used last first, that a cache does not keep by itself, and reports
// whether there were any.
func limit(all []Program, now time.Time) bool {
	old := slices.DeleteFunc(all[min(keepLatest, len(all)):], func(p Program) bool { return now.Sub(p.Used) < keepUnused })
	if len(old) == 0 {
		return false
	}
	findRunning(old)
	for _, p := range old {
		if p.Tree {
			p.measure()
		}
		if !p.InUse && !p.Written && usedAt(p.Dir).Equal(p.Used) { // or another job has begun to use it
			os.RemoveAll(p.Dir)
		}
	}
	return true
}

// usedAt returns when a job last used what is in a directory. gorun 1.0 marks a file in it.
func usedAt(dir string) (at time.Time) {
	for _, name := range []string{dir, filepath.Join(dir, "used")} {
		if info, err := os.Stat(name); err == nil && info.ModTime().After(at) {
			at = info.ModTime()
		}
	}
	return at
}
