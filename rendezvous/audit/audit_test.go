package audit

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"unicode"

	"gorun/contrib/must"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, path string) *Log {
	t.Helper()
	l, err := Open(path, "host1", func(err error) { t.Error(err) })
	must.Do(t, err)
	t.Cleanup(l.Close)
	return l
}

// entries reads a log.
func entries(t *testing.T, path string) (all []Entry) {
	t.Helper()
	b := must.Read(t, path)
	for lines := bufio.NewScanner(bytes.NewReader(b)); lines.Scan(); {
		var e Entry
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatalf("%v: %s", err, lines.Text())
		}
		all = append(all, e)
	}
	return all
}

func TestLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit", "log")
	l := open(t, path)
	l.Write(Entry{What: "start", Key: "abcd", Claims: &Claims{User: "alice", Program: "train.py", Ranks: 4}})
	l.Write(Entry{What: "start", Result: Refused, Why: "no slots"})
	l.Close()
	l.Close()
	l.Write(Entry{What: "late"})
	all := entries(t, path)
	if len(all) != 2 || all[0].Claims.User != "alice" || all[0].Claims.Program != "train.py" || all[0].Result != Done || all[0].Daemon != "host1" ||
		all[0].Key != "abcd" || all[0].Time.IsZero() || all[1].Result != Refused {
		t.Errorf("%+v", all)
	}
	for name, mode := range map[string]os.FileMode{path: 0o600, filepath.Dir(path): 0o700 | os.ModeDir} {
		if info, err := os.Stat(name); err != nil || info.Mode() != mode {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
	var none *Log
	none.Write(Entry{})
	none.Close()
}

// TestAgain: a log goes on where it ended, for its user alone.
func TestAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	must.Do(t, os.WriteFile(path, []byte(`{"what":"before"}`+"\n"), 0o644))
	l := open(t, path)
	l.Write(Entry{What: "after"})
	l.Close()
	if all := entries(t, path); len(all) != 2 || all[0].What != "before" || all[1].What != "after" {
		t.Errorf("%+v", all)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

// TestMoved: after logrotate has moved the file away, the next entry makes another one.
func TestMoved(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l := open(t, path)
	l.Write(Entry{What: "first"})
	for len(entries(t, path)) == 0 { // until it is written
	}
	must.Do(t, os.Rename(path, path+".old"))
	l.Write(Entry{What: "second"})
	l.Close()
	if before, after := entries(t, path+".old"), entries(t, path); len(before) != 1 || len(after) != 1 || after[0].What != "second" {
		t.Errorf("%+v, %+v", before, after)
	}
}

// TestFull: a file of the greatest size takes the place of the one that was full before it.
func TestFull(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	must.Do(t, os.WriteFile(path, nil, 0o600))
	must.Do(t, os.WriteFile(path+".1", nil, 0o600))
	must.Do(t, os.Truncate(path, maxSize))
	l := open(t, path)
	l.Write(Entry{What: "first"})
	l.Write(Entry{What: "second"})
	l.Close()
	info, err := os.Stat(path + ".1")
	if all := entries(t, path); err != nil || info.Size() != maxSize || len(all) != 2 {
		t.Errorf("%+v, %v, %v", all, info, err)
	}
}

// TestLost: entries that the file system does not take are counted, and nothing waits for it.
func TestLost(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l := &Log{path: path, warn: func(err error) { t.Error(err) }, entries: make(chan Entry, waiting), done: make(chan struct{})}
	for range waiting + 7 {
		l.Write(Entry{What: "start"})
	}
	go l.run()
	l.Close()
	all := entries(t, path)
	if len(all) != waiting+1 || !strings.HasPrefix(all[1].Why, "7 entries were lost") {
		t.Errorf("%d entries, %+v", len(all), all[:2])
	}
}

// TestMistakes: what is no file of one's own is refused.
func TestMistakes(t *testing.T) {
	dir := t.TempDir()
	pipe, link, file := filepath.Join(dir, "pipe"), filepath.Join(dir, "link"), filepath.Join(dir, "file")
	for _, err := range []error{unix.Mkfifo(pipe, 0o600), os.Symlink(file, link), os.WriteFile(file, nil, 0o600)} {
		must.Do(t, err)
	}
	for _, path := range []string{dir, pipe, link, filepath.Join(file, "log"), "/dev/null"} {
		if l, err := Open(path, "", func(error) {}); err == nil {
			l.Close()
			t.Errorf("%s was taken", path)
		}
	}
}

// TestWarns: a log that cannot be written any more says so, once a minute, and the daemon goes on.
func TestWarns(t *testing.T) {
	var mu sync.Mutex
	var warnings []error
	path := filepath.Join(t.TempDir(), "log")
	l, err := Open(path, "host1", func(err error) {
		mu.Lock()
		defer mu.Unlock()
		warnings = append(warnings, err)
	})
	must.Do(t, err)
	must.Do(t, os.Remove(path))
	must.Do(t, os.Mkdir(path, 0o700))
	l.Write(Entry{What: "start"})
	l.Write(Entry{What: "start"})
	l.Close()
	if len(warnings) != 1 {
		t.Errorf("%v", warnings)
	}
}

// TestBounded: whatever a launcher sends, an entry is one line of printable text, and not much longer than the bound.
func TestBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l := open(t, path)
	for _, text := range []string{"a\nb\x1b[2J", "\u009b2J\u202e", "\xff\xfe", "\"}{", strings.Repeat("é", maxText), strings.Repeat("\x00", 2*maxText)} {
		l.Write(Entry{What: "start", Claims: &Claims{User: text, Program: text}, Result: Refused, Why: text})
	}
	l.Close()
	b := must.Read(t, path)
	if i := bytes.IndexFunc(b, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }); i >= 0 {
		t.Errorf("%q is not printed", b[i:])
	}
	all := entries(t, path)
	if len(all) != 6 || all[0].Why != "a�b�[2J" || all[3].Claims.User != "\"}{" || len(all[4].Claims.Program) > maxText+8 ||
		len(all[5].Why) > maxText+8 {
		t.Errorf("%+v", all)
	}
}
