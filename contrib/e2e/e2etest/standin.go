//go:build linux

package e2etest

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"gorun/contrib/lab"
	"gorun/contrib/must"
)

// Standin is a directory for the stand-in for libibverbs, which all hosts of a lab share, and where files make faults:
// see contrib/verbs/standin.c.
type Standin struct {
	t       *testing.T
	Dir     string
	Library string
}

// NewStandin compiles the library. The lab's hosts must share Dir.
func NewStandin(t *testing.T) *Standin {
	t.Helper()
	if _, err := os.Stat("/usr/include/infiniband/verbs.h"); err != nil {
		t.Skip("no headers of libibverbs: apt-get install libibverbs-dev")
	}
	dir, err := os.MkdirTemp("/dev/shm", "gorun-verbs-")
	must.Do(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := &Standin{t, dir, filepath.Join(dir, "libibverbs.so.1")}
	source := filepath.Join(Root(), "contrib/verbs/standin.c")
	Compile(t, "cc", "gcc", "-shared", "-fPIC", "-O2", fmt.Sprintf("-DDIRECTORY=%q", dir), "-o", s.Library, source)
	return s
}

// Class returns a directory for lab.Options.Class, where Show has so many hosts see devices.
func (s *Standin) Class(hosts int) string {
	s.t.Helper()
	class := filepath.Join(s.Dir, "class")
	for i := range hosts {
		must.Do(s.t, os.MkdirAll(filepath.Join(class, fmt.Sprintf("host%d", i+1), "infiniband"), 0o755))
	}
	return class
}

// Show has a host of the lab see its device in /sys/class/infiniband, in that state and of that speed.
func (s *Standin) Show(h *lab.LabHost, state string, gigabits int) {
	s.t.Helper()
	device := filepath.Join(s.Dir, "class", h.Name(), "infiniband/standin0")
	port := filepath.Join(device, "ports/1")
	address := h.Address().AsSlice()
	for file, text := range map[string]string{
		filepath.Join(device, "parent"):          "eth0",
		filepath.Join(port, "state"):             state,
		filepath.Join(port, "rate"):              fmt.Sprintf("%d Gb/sec (4X EDR)", gigabits),
		filepath.Join(port, "link_layer"):        "Ethernet",
		filepath.Join(port, "gids/2"):            fmt.Sprintf("0000:0000:0000:0000:0000:ffff:%x:%x", address[:2], address[2:]),
		filepath.Join(port, "gid_attrs/types/2"): "RoCE v2",
		filepath.Join(port, "gid_attrs/ndevs/2"): "eth0",
	} {
		must.Do(s.t, os.MkdirAll(filepath.Dir(file), 0o755))
		must.Do(s.t, os.WriteFile(file, []byte(text+"\n"), 0o644))
	}
}

// Flags have a job use it.
func (s *Standin) Flags() []string { return []string{"--rdma", "on", "--rdma-library", s.Library} }

// Fault makes a fault, until end is called.
func (s *Standin) Fault(name, text string) (end func()) {
	s.t.Helper()
	file := filepath.Join(s.Dir, name)
	must.Do(s.t, os.WriteFile(file, []byte(text), 0o644))
	return func() { os.Remove(file) }
}

// Killed counts the queue pairs that the fault "kill" has broken.
func (s *Standin) Killed() int {
	all, _ := os.ReadFile(filepath.Join(s.Dir, "killed"))
	return len(all)
}

// Pairs counts the queue pairs that exist on any host.
func (s *Standin) Pairs() int {
	all, _ := filepath.Glob(filepath.Join(s.Dir, "pair-*")) // the pattern is well-formed
	return len(all)
}

// Left names the files of queue pairs and registered memory.
func (s *Standin) Left() []string {
	all, _ := filepath.Glob(filepath.Join(s.Dir, "*-*")) // the pattern is well-formed
	return all
}

// LeftAt returns the names of what is left of the host with an address.
func (s *Standin) LeftAt(host netip.Addr) []string {
	bytes := host.AsSlice()
	all, _ := filepath.Glob(filepath.Join(s.Dir, fmt.Sprintf("*-*%02x", bytes[len(bytes)-1]))) // the pattern is well-formed
	return all
}
