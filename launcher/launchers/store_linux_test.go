package launchers

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"gorun/contrib/must"
	"gorun/rendezvous/authority"
)

// TestPromisesOutliveThePower: what an elector has saved is there when its host has power again, the first time and each time after that.
func TestPromisesOutliveThePower(t *testing.T) {
	const inside = "GORUN_TEST_OWN_MOUNTS"
	if os.Getenv(inside) == "" { // where no lab that is made meanwhile has a copy of the mount, which would keep the disk as it is
		cmd := exec.Command("unshare", "--mount", os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
		cmd.Env = append(os.Environ(), inside+"=1")
		out, err := cmd.CombinedOutput()
		if skipped := bytes.Contains(out, []byte("--- SKIP")); skipped || os.Geteuid() != 0 {
			t.Skip("this machine has no loop device for a disk that loses its power")
		} else if bytes.Contains(out, []byte("unshare failed: Operation not permitted")) {
			t.Skip("a namespace of mounts takes root, and in a container --privileged")
		} else if err != nil || !bytes.Contains(out, []byte("--- PASS: "+t.Name())) {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	disk := filepath.Join(t.TempDir(), "disk")
	must.Do(t, os.WriteFile(disk, nil, 0o600))
	must.Do(t, os.Truncate(disk, 16<<20))
	run := func(name string, args ...string) error {
		out, err := exec.Command(name, args...).CombinedOutput()
		if err != nil {
			t.Logf("%s %q: %v\n%s", name, args, err, out)
		}
		return err
	}
	at := t.TempDir()
	if run("mkfs.ext4", "-q", disk) != nil || run("mount", "-o", "loop", disk, at) != nil {
		t.SkipNow()
	}
	mounted := true
	t.Cleanup(func() {
		if mounted && run("umount", "--lazy", at) != nil {
			t.Error("the disk is still there")
		}
	})
	h := hostAt(at, "here")
	for promised := range uint64(3) {
		must.Do(t, h.Save(authority.State{Job: "ab", Promised: promised + 1}))
		cutPower(t, at)
		must.Do(t, run("umount", at))
		mounted = false
		must.Do(t, run("mount", "-o", "loop", disk, at))
		mounted = true
		if all, err := h.Load(); err != nil || len(all) != 1 || all[0].Promised != promised+1 {
			t.Fatalf("after it promised term %d: %+v, %v", promised+1, all, err)
		}
	}
}

// cutPower has a file system forget what is not on its disk.
func cutPower(t *testing.T, at string) {
	t.Helper()
	dir, err := os.Open(at)
	must.Do(t, err)
	defer dir.Close()
	const shutdown, withoutJournal = 0x8004587d, 2 // EXT4_IOC_SHUTDOWN, EXT4_GOING_FLAGS_NOLOGFLUSH
	if err := unix.IoctlSetPointerInt(int(dir.Fd()), shutdown, withoutJournal); err != nil {
		t.Fatalf("shut the file system down: %v", err)
	}
}
