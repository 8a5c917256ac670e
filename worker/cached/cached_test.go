package cached

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gorun/contrib/must"
)

// program makes a program of a directory that was used some time ago.
func program(t *testing.T, dir string, number int, ago time.Duration) string {
	t.Helper()
	at := filepath.Join(dir, strings.Repeat(strconv.Itoa(number), 64))
	must.Do(t, os.MkdirAll(at, 0o700))
	must.Do(t, os.WriteFile(filepath.Join(at, "gorun"), []byte("x"), 0o700))
	then := time.Now().Add(-ago)
	must.Do(t, os.Chtimes(at, then, then))
	return at
}

func there(t *testing.T, dir string) (numbers string) {
	t.Helper()
	for _, p := range List(dir) {
		numbers = p.Hash()[:1] + numbers
	}
	return numbers
}

// run has a process execute a program until the test ends.
func run(t *testing.T, at string) {
	t.Helper()
	sleep, err := exec.LookPath("sleep")
	must.Do(t, err)
	from, err := os.Open(sleep)
	must.Do(t, err)
	defer from.Close()
	path := filepath.Join(at, "gorun")
	to, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0o700)
	must.Do(t, err)
	_, err = io.Copy(to, from)
	to.Close()
	must.Do(t, err)
	cmd := exec.Command(path, "1000")
	if err := cmd.Start(); err != nil {
		t.Skipf("this place allows no programs: %v", err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
}

const day = 24 * time.Hour

// TestLimit: a cache keeps by itself what was used last, what other hosts may use, and what runs here.
func TestLimit(t *testing.T) {
	dir := t.TempDir()
	program(t, dir, 1, 90*day)
	program(t, dir, 2, 25*time.Hour)
	old := program(t, dir, 3, 90*day) // another host runs it with gorun 1.0, which marks a file
	must.Do(t, os.WriteFile(filepath.Join(old, "used"), nil, 0o600))
	must.Do(t, os.Chtimes(old, time.Now().Add(-90*day), time.Now().Add(-90*day)))
	run(t, program(t, dir, 4, 30*day))
	program(t, dir, 5, 23*time.Hour)
	for _, number := range []int{6, 7} {
		program(t, dir, number, time.Hour)
	}
	own := program(t, dir, 8, time.Hour)
	for name, age := range map[string]time.Duration{".up-old": 2 * time.Hour, ".up-new": time.Minute} {
		for _, in := range []string{strings.Repeat("8", 64), strings.Repeat("2", 64)} {
			file := filepath.Join(dir, in, name)
			must.Do(t, os.WriteFile(file, nil, 0o600))
			must.Do(t, os.Chtimes(file, time.Now().Add(-age), time.Now().Add(-age)))
			must.Do(t, os.Chtimes(filepath.Dir(file), time.Now().Add(-25*time.Hour), time.Now().Add(-25*time.Hour)))
		}
	}
	other := filepath.Join(dir, "id")
	must.Do(t, os.WriteFile(other, nil, 0o600))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	Tend(ended, filepath.Join(own, "gorun"))
	got := there(t, dir)
	for _, number := range "345678" {
		got = strings.Replace(got, string(number), "", 1)
		if _, err := os.Stat(filepath.Join(dir, strings.Repeat(string(number), 64))); err != nil {
			t.Errorf("program %c is gone", number)
		}
	}
	if got != "" {
		t.Errorf("programs %s are still there", got)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*", ".up-*")); len(left) != 1 || filepath.Base(left[0]) != ".up-new" {
		t.Errorf("of uploads there is %v", left)
	}
	if _, err := os.Stat(other); err != nil {
		t.Error(err)
	}
}

// TestClean: what a user removes was not used for as long as the flag sets, and may not be in use.
func TestClean(t *testing.T) {
	dir := t.TempDir()
	program(t, dir, 1, 3*day)
	program(t, dir, 2, 3*time.Hour)
	program(t, dir, 3, time.Hour) // another host may run it
	run(t, program(t, dir, 5, 9*day))
	os.Mkdir(filepath.Join(dir, "not-a-hash"), 0o700)
	for _, tc := range []struct {
		unused time.Duration
		remove bool
		want   string // removed
		left   string
	}{
		{day, false, "1", "1235"}, {day, true, "1", "235"}, {0, false, "2", "235"}, {0, true, "2", "35"},
	} {
		removed := ""
		for _, p := range Clean([]string{dir, filepath.Join(dir, "none")}, tc.unused, time.Now(), tc.remove) {
			if p.Removed {
				removed += p.Hash()[:1]
			}
		}
		left := there(t, dir)
		if sorted(removed) != tc.want || sorted(left) != tc.left {
			t.Errorf("unused for %v, remove %v: %s, left %s; want %s, %s", tc.unused, tc.remove, removed, left, tc.want, tc.left)
		}
	}
	if link := filepath.Join(t.TempDir(), "link"); os.Symlink(dir, link) != nil || List(link) != nil {
		t.Error("a link to a directory is no place of ours")
	}
}

func sorted(s string) (out string) {
	for _, number := range "123456789" {
		if strings.ContainsRune(s, number) {
			out += string(number)
		}
	}
	return out
}

// TestTend: a program marks itself, if it was uploaded, and nothing else.
func TestTend(t *testing.T) {
	dir := t.TempDir()
	at := program(t, dir, 1, 9*day)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	Tend(ended, filepath.Join(at, "gorun"))
	if p := List(dir)[0]; time.Since(p.Used) > time.Minute || !p.MayRun(time.Now()) {
		t.Errorf("%+v", p)
	}
	own := filepath.Join(t.TempDir(), "gorun")
	Tend(t.Context(), own) // returns at once
	if left, _ := os.ReadDir(filepath.Dir(own)); len(left) > 0 {
		t.Errorf("made %v", left)
	}
}

// TestPlaces: they are those of the script that uploads.
func TestPlaces(t *testing.T) {
	env := map[string]string{"HOME": "/home/me"}
	getenv := func(name string) string { return env[name] }
	own := "gorun-" + strconv.Itoa(os.Getuid())
	shared := " /tmp/" + own + " /var/tmp/" + own + " /dev/shm/" + own
	if got := strings.Join(Places(getenv), " "); got != "/home/me/.cache/gorun"+shared {
		t.Error(got)
	}
	env["XDG_CACHE_HOME"] = "/cache"
	if got := strings.Join(Places(getenv), " "); got != "/cache/gorun"+shared {
		t.Error(got)
	}
}

// TestOpen: a directory that a stranger has made, or may write to, is passed over, and so is one that takes nothing.
func TestOpen(t *testing.T) {
	home := t.TempDir()
	getenv := func(name string) string { return map[string]string{"HOME": home}[name] }
	own := filepath.Join(home, ".cache", "gorun")
	t.Cleanup(func() {
		for _, dir := range Places(getenv)[1:] {
			os.Remove(dir) // unless somebody uses it
		}
	})
	if dir, err := Open(getenv, func(string) error { return nil }); err != nil || dir != own {
		t.Errorf("%s, %v", dir, err)
	}
	tried := ""
	full := func(dir string) error { tried += dir + " "; return io.ErrShortWrite }
	if _, err := Open(getenv, full); err == nil || !strings.HasPrefix(tried, own+" /tmp/gorun-") {
		t.Errorf("tried %s: %v", tried, err)
	}
	must.Do(t, os.Chmod(own, 0o777))
	if dir, err := Open(getenv, func(dir string) error { tried = dir; return nil }); err != nil || dir == own || tried != dir {
		t.Errorf("others may write to %s: %v", dir, err)
	}
}

// TestKeep: the trees of a job that runs for days count as used.
func TestKeep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dirs := []string{t.TempDir(), t.TempDir()}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Hour+time.Minute)
		defer cancel()
		Keep(ctx, dirs...)
		for _, dir := range dirs {
			if info, err := os.Stat(dir); err != nil || time.Since(info.ModTime()) > 2*time.Minute {
				t.Errorf("last marked %v ago: %v", time.Since(info.ModTime()), err)
			}
		}
	})
}
