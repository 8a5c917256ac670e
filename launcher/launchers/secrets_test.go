package launchers

import (
	"encoding/base64"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"gorun/contrib/must"
	"gorun/launcher/jobs"
	"gorun/rendezvous/authority"
	"gorun/rendezvous/wire"
)

// TestMain has the test binary be a launcher that reports a variable of its request, and runs until it is killed.
func TestMain(m *testing.M) {
	dir := os.Getenv(Variable)
	if dir == "" {
		goleak.VerifyTestMain(m)
	}
	l, err := Open(dir, os.Exit)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	l.Report("runs with " + os.Getenv("PASSWORD"))
	io.Copy(io.Discard, os.Stdin) // ranks find nothing more there
	select {}
}

var base64Text = regexp.MustCompile(`[A-Za-z0-9+/]{16,}=*`)

// TestHostileDiskOfDetachedJob: the environment of a detached job is in no file, not while it runs and not after its
// launcher was killed. Neither does an elector keep it when the job has ended.
func TestHostileDiskOfDetachedJob(t *testing.T) {
	state := t.TempDir()
	h := hostAt(state, "here")
	const secret = "a secret of the user"
	clean := func(when string) {
		t.Helper()
		files := 0
		err := filepath.WalkDir(state, func(path string, e fs.DirEntry, err error) error {
			if err != nil || !e.Type().IsRegular() {
				return err
			}
			files++
			text, err := os.ReadFile(path)
			for _, coded := range base64Text.FindAll(text, -1) { // as JSON has a []byte
				plain, _ := base64.StdEncoding.DecodeString(string(coded))
				text = append(text, plain...)
			}
			if strings.Contains(string(text), secret) || strings.Contains(string(text), "of the job") {
				t.Errorf("%s: %s holds a secret: %s", when, path, text)
			}
			return err
		})
		if err != nil || files == 0 {
			t.Errorf("%s: %d files, %v", when, files, err)
		}
	}
	request := &wire.Detach{Program: "p", Args: []string{"p"}, Dir: t.TempDir(), Env: []string{"PASSWORD=" + secret}}
	for _, successor := range []bool{false, true} {
		task, want := errand{Request: request}, "runs with "+secret
		if successor {
			value := fmt.Sprintf(`{"name": "a/1", "request": {"program": "p", "env": ["PASSWORD=%s"]}, "launcher": "a secret of the job"}`, secret)
			from, err := newSuccession(authority.State{Job: "ab"}, authority.Snapshot{Value: []byte(value)})
			must.Do(t, err)
			task, want = errand{Request: request, From: from}, "goes on"
		}
		cmd, d, err := h.start(t.Context(), task, jobs.Record{Program: "p"})
		if err != nil || d.Text != want {
			t.Fatalf("%+v, %v", d, err)
		}
		clean("it runs")
		if in, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/0", cmd.Process.Pid)); err != nil || !strings.HasPrefix(in, "socket:") {
			t.Errorf("the errand comes by %s, which others of the user can open, %v", in, err)
		}
		must.Do(t, cmd.Process.Kill())
		cmd.Wait()
		clean("it was killed")
	}
	over := authority.State{Job: "ab", Over: true, Value: []byte(fmt.Sprintf(
		`{"name": "a/1", "started": "2026-01-02T03:04:05Z", "request": {"program": "p", "args": ["p"], "env": ["PASSWORD=%s"], "variables": ["OF_A_FILE=%[1]s"]}, "launcher": "a secret of the job", "code": 7}`, secret))}
	must.Do(t, h.Save(over))
	clean("an elector knows that it has ended")
	all, err := h.Load()
	if err != nil || len(all) != 1 {
		t.Fatalf("%+v, %v", all, err)
	}
	r, err := recordOf(all[0])
	if want := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC); err != nil || r.Program != "p" || r.Name != "a/1" || !r.Started.Equal(want) {
		t.Errorf("its record is %+v, %v", r, err)
	}
}
