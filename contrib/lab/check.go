//go:build linux

package lab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// tools are the programs that a lab needs beside a shell, with Debian's package for each.
var tools = []struct{ name, pkg string }{
	{"ip", "iproute2"}, {"tc", "iproute2"}, {"mount", "mount"}, {"unshare", "util-linux"}, {"sshd", "openssh-server"},
}

// Check returns an error that names what a lab lacks on this machine and how to get it, or nil.
func Check() error {
	if os.Geteuid() != 0 {
		return errors.New("a lab needs root: run it with sudo")
	}
	var missing []string
	for _, tool := range tools {
		if _, err := findTool(tool.name); err != nil {
			missing = append(missing, tool.pkg)
		}
	}
	if missing != nil {
		return fmt.Errorf("a lab needs more programs: apt-get install %s", strings.Join(missing, " "))
	}
	// An attempt is more reliable than a list of features: containers and kernels differ in what they forbid.
	script := `mount --make-rprivate / && mount -t proc proc /proc && mount -t sysfs sysfs /sys &&
		ip link add lab0 type bridge && ip link add lab1 type veth peer name lab2`
	cmd := exec.Command("/bin/sh", "-c", script)
	cmd.Env = []string{"PATH=" + searchPath}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: hostNamespaces}
	if out, err := cmd.CombinedOutput(); errors.Is(err, unix.EPERM) {
		return errors.New("a lab needs namespaces, which are not permitted here: in a container, run it with --privileged")
	} else if err != nil {
		return fmt.Errorf("a lab needs namespaces, mounts, a bridge and veth pairs, which do not work here: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

// findTool finds a program as root would, whatever the PATH of this process is.
func findTool(name string) (string, error) {
	for _, dir := range strings.Split(searchPath, ":") {
		if path, err := exec.LookPath(dir + "/" + name); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("find %s: %w", name, exec.ErrNotFound)
}

// ForTest makes a lab that lives as long as the test. Where a lab is impossible, it skips the test and reports
// what is missing.
func ForTest(t testing.TB, hosts int, options Options) *Lab {
	t.Helper()
	if err := Check(); err != nil {
		t.Skip(err)
	}
	l, err := New(t.Context(), hosts, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			for _, h := range l.hosts {
				t.Logf("log of %s:\n%s", h.name, h.Log())
			}
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}
