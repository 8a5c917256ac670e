package proc

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"gorun/contrib/must"

	"golang.org/x/sys/unix"
)

// TestMuteFileSystem: a file system whose server never answers, as a hard mount of NFS does when its server is gone,
// delays the start of ranks for a bounded time. It is one of FUSE whose requests nobody reads.
func TestMuteFileSystem(t *testing.T) {
	fuse, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skipf("no FUSE here: %v", err)
	}
	dir := t.TempDir()
	if err := unix.Mount("mute", dir, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", fuse)); err != nil {
		unix.Close(fuse)
		t.Skipf("mount FUSE: %v", err)
	}
	defer unix.Unmount(dir, unix.MNT_DETACH)
	defer unix.Close(fuse) // ends what waits
	for _, spec := range []Spec{{Argv: []string{dir + "/train"}}, {Argv: []string{"train"}, Env: []string{"PATH=" + dir}}, {Argv: []string{"/bin/true"}, Dir: dir}} {
		if _, ok := Within(100*time.Millisecond, func() error { _, err := look(spec, spec.Env); return err }); ok {
			t.Errorf("%q in %q: the file system answered", spec.Argv, spec.Dir)
		}
	}
	g, begun := &Group{mute: time.Now()}, time.Now()
	_, err = g.find(Spec{Argv: []string{dir + "/train"}}, nil) // of the next rank
	if took := time.Since(begun); err == nil || !strings.HasSuffix(err.Error(), ": its file system has not answered for 20s") || took > lookTimeout/2 {
		t.Errorf("the next rank: %v after %v", err, took)
	}
	g.mute = time.Now().Add(-2 * lookTimeout)
	if _, err := g.find(Spec{Argv: []string{"/bin/true"}}, nil); err != nil {
		t.Errorf("after the file server came back: %v", err)
	}
}

// TestMuteFile: a file server that shows files, and answers nobody who opens one, delays the start of ranks for a bounded time too.
// Here nobody decides about the permission to open.
func TestMuteFile(t *testing.T) {
	dir := t.TempDir()
	program, script := dir+"/python3", dir+"/train"
	for file, text := range map[string]string{program: "", script: "#!" + program + " -u\n"} {
		must.Do(t, os.WriteFile(file, []byte(text), 0o755))
	}
	mute, err := unix.FanotifyInit(unix.FAN_CLASS_CONTENT|unix.FAN_CLOEXEC, unix.O_RDONLY)
	if err != nil {
		t.Skipf("no permissions by fanotify: %v", err)
	}
	defer unix.Close(mute) // ends what waits
	if err := unix.FanotifyMark(mute, unix.FAN_MARK_ADD, unix.FAN_OPEN_PERM, unix.AT_FDCWD, program); err != nil {
		t.Skipf("no permissions by fanotify: %v", err)
	}
	for _, name := range []string{program, script} {
		if err, ok := Within(100*time.Millisecond, func() error { _, err := look(Spec{Argv: []string{name}}, nil); return err }); ok {
			t.Errorf("%s: the file server answered: %v", name, err)
		}
	}
}
