//go:build linux

package e2etest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gorun/contrib/lab"
	"gorun/contrib/must"
)

// SSHCluster is a cluster with a directory that all hosts see, for keys and configurations.
type SSHCluster struct {
	*Cluster
	Dir string
}

func NewSSHCluster(t *testing.T, hosts int) *SSHCluster {
	c := NewCluster(t, hosts)
	return &SSHCluster{c, c.Shared("ssh")}
}

// Write makes a file and returns its path.
func (c *SSHCluster) Write(name, text string, mode os.FileMode) string {
	c.T.Helper()
	path := filepath.Join(c.Dir, name)
	must.Do(c.T, os.WriteFile(path, []byte(text), mode))
	return path
}

// Config makes an ssh_config that ends with the options for all hosts.
func (c *SSHCluster) Config(name, text string) string {
	return c.Write(name, text+"\nHost *\n User root\n IdentityFile ~/.ssh/id_ed25519\n StrictHostKeyChecking yes\n", 0o600)
}

// Logins counts the logins on a host.
func Logins(h *lab.LabHost) int { return strings.Count(h.Log(), "Accepted publickey") }

const DeafRelay = `import os, socket, sys, threading, time
s = socket.create_connection((sys.argv[1], int(sys.argv[2])))
def up():
    while b := os.read(0, 65536):
        s.sendall(b)
threading.Thread(target=up, daemon=True).start()
try:
    while b := s.recv(65536):
        os.write(1, b)
except OSError:
    pass
time.sleep(1000)
`
