package controlplane

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
)

// TestMain runs the tests in a network namespace of their own: some programs listen at fixed ports. No module can be fetched
// there. All that they start ends with this process.
func TestMain(m *testing.M) {
	const inside = "CONTROLPLANE_INSIDE"
	if os.Getenv(inside) != "" {
		os.Exit(m.Run())
	}
	for module := range definitions {
		if out, err := exec.Command("go", "mod", "download", module).CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "go mod download %s: %v\n%s", module, err, out)
			os.Exit(1)
		}
	}
	cmd := exec.Command("unshare", append([]string{"--net", "--pid", "--fork", "--kill-child", "--mount-proc", "--", "/bin/sh", "-c",
		`ip link set lo up && exec "$@"`, "sh"}, os.Args...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), inside+"=yes")
	runtime.LockOSThread() // whose end is the signal's
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "run tests in namespaces, as root:", err)
		os.Exit(1)
	}
}
