package probe

import (
	"context"
	"os/exec"
	"strings"
	"time"
	"unicode"
)

// What VMware's programs in a virtual machine tell of the host it is on. A guest does not learn which host that is:
// whoever places machines can write it where guests read it, and guests of hosts with different versions are on
// different hosts.

const (
	// toolsPatience is how long all questions may take.
	toolsPatience = 3 * time.Second
	// longestLabel is that of a host's name.
	longestLabel = 253
)

// releaseLabel is the label for the version and build of a machine's hypervisor.
const releaseLabel = "esxi-release"

func executeTools(ctx context.Context, program string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.WaitDelay = time.Second
	return cmd.Output()
}

// askTools returns labels of the host: what an administrator has set as guestinfo.gorun.esxi, .rack and .zone, and the
// hypervisor's release. There are none if nobody answers.
func askTools(ctx context.Context, run func(ctx context.Context, program string, args ...string) ([]byte, error)) map[string]string {
	if run == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, toolsPatience)
	defer cancel()
	labels := map[string]string{}
	add := func(label, text string) {
		if text = strings.TrimSpace(text); isLabel(text) {
			labels[label] = text
		}
	}
	session, err := run(ctx, "vmware-toolbox-cmd", "stat", "raw", "text", "session")
	for line := range strings.Lines(string(session)) {
		if key, value, ok := strings.Cut(line, "="); ok && strings.TrimSpace(key) == "version" {
			add(releaseLabel, value)
		}
	}
	if err != nil && len(session) == 0 && ctx.Err() != nil {
		return nil // they hang
	}
	for _, label := range []string{"esxi", "rack", "zone"} {
		if text, err := run(ctx, "vmtoolsd", "--cmd", "info-get guestinfo.gorun."+label); err == nil {
			add(label, string(text))
		}
	}
	if len(labels) == 0 {
		return nil
	}
	return labels
}

// isLabel is what a topology file accepts too.
func isLabel(text string) bool {
	return text != "" && len(text) <= longestLabel && strings.IndexFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) < 0
}
