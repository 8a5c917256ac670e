package session_test

import (
	"encoding/hex"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// TestHostileUser: another user of the host who knows the socket's name, and even the token of a rank, is not heard.
func TestHostileUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to be another user")
	}
	h := start(t, 1).begin()
	try := func(uid uint32) string {
		cmd := exec.CommandContext(t.Context(), "/usr/bin/python3", "-c", `
import socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.settimeout(10)
s.connect("\0" + sys.argv[1])
try:
    s.sendall(bytes.fromhex(sys.argv[2]))
    print(len(s.recv(4096)))
except OSError as e:
    print(e)
`, strings.TrimPrefix(h.name, "@"), hex.EncodeToString(helloOf(0, token(0))))
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		cmd.Dir = "/"
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return strings.TrimSpace(string(out))
	}
	const nobody = 65534
	if got := try(nobody); got != "0" && !strings.Contains(got, "reset") && !strings.Contains(got, "Broken pipe") || h.server.PID(0) != 0 {
		t.Errorf("another user gets %s", got)
	}
	if got := try(0); got == "0" || strings.Contains(got, " ") {
		t.Errorf("the same user gets %s", got)
	}
}
