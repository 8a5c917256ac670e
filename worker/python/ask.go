package python

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"gorun/rendezvous/wire"
)

// askLimit is how long a Python may take to start.
const askLimit = 20 * time.Second

// question has a Python say what decides which packages suit it, and which Python an environment would begin with.
const question = `
import os, sys
try: libc = os.confstr("CS_GNU_LIBC_VERSION").split()[1]
except (ValueError, AttributeError): libc = ""
flags = getattr(sys, "abiflags", "") + ("" if sys.implementation.name == "cpython" else " of " + sys.implementation.name)
print("%d.%d" % sys.version_info[:2] + flags, os.uname().machine, libc, getattr(sys, "_base_executable", sys.executable), sep="\n")
`

// Ask starts a Python and returns its platform, and the Python that is below it if it is one of an environment.
func Ask(ctx context.Context, file string, env []string) (p wire.Platform, base string, err error) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, file, "-I", "-S", "-c", question)
	cmd.Env, cmd.WaitDelay = env, time.Second
	out, err := cmd.Output()
	words := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	if err == nil && len(words) != 4 {
		err = fmt.Errorf("it says %q", out)
	}
	if err != nil {
		return p, "", fmt.Errorf("ask %s for its version: %w", file, err)
	}
	return wire.Platform{Version: words[0], Machine: words[1], Libc: words[2]}, words[3], nil
}
