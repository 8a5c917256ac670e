//go:build linux && !rdma

package command

import (
	"os/exec"
	"strings"
	"testing"
)

// A program without gorund-rdma starts itself as the daemon, which learns why.
func TestWithoutRDMA(t *testing.T) {
	cmd := &exec.Cmd{Path: "/proc/self/exe", Args: []string{"gorun", "worker", "--daemon"}}
	preferRDMA(cmd, "/no/such/library")()
	rest, found := takeRDMA(cmd.Args[1:])
	if cmd.Path != "/proc/self/exe" || strings.Join(rest, " ") != "worker --daemon" || found.exe != "" {
		t.Errorf("%s %q would be started", cmd.Path, cmd.Args)
	}
	if found.missing == nil || found.missing.Error() != "open gorund-rdma: this gorun was built without it" {
		t.Errorf("the reason is %v", found.missing)
	}
	err := Process{}.Parse([]string{"worker", "--rdma-check="})(t.Context())
	if err == nil || err.Error() != "this program was built without RDMA" {
		t.Errorf("the check of another program: %v", err)
	}
}
