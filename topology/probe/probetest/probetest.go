// Package probetest unpacks the fixtures of package probe for tests: descriptions of machines, most of them written by
// hand after real ones. A fixture holds the files of /sys, /proc and /etc that the probe reads, and the output of
// nvidia-smi and VMware Tools.
package probetest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gorun/topology"
	"gorun/topology/probe"
)

// Probe describes the machine in an archive.
func Probe(t testing.TB, archive string) topology.Host {
	t.Helper()
	root := Unpack(t, archive)
	host, err := probe.Prober{Root: root, Run: played(root)}.Probe(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return host
}

// played plays nvidia-smi and VMware's programs from files.
func played(root string) func(context.Context, string, ...string) ([]byte, error) {
	return func(_ context.Context, program string, args ...string) ([]byte, error) {
		if program == "nvidia-smi" {
			question, _, _ := strings.Cut(args[0], "=")
			return os.ReadFile(filepath.Join(root, program, strings.TrimLeft(question, "-")))
		}
		words := strings.Fields(args[len(args)-1])
		return os.ReadFile(filepath.Join(root, "vmtools", words[len(words)-1]))
	}
}

// Unpack creates the files of an archive in the txtar format. Each line before the first file describes a file of one
// line or a symbolic link: "path: content" or "path -> target". A line "pci path -> attribute=value…" creates a PCI
// function below /sys/devices and its link in /sys/bus; "net", with the path of a function and a name, an interface on
// it.
func Unpack(t testing.TB, archive string) string {
	t.Helper()
	text, err := os.ReadFile(archive)
	if err != nil {
		t.Fatal(err)
	}
	tree := tree{t, t.TempDir()}
	sections := strings.Split("\n"+string(text), "\n-- ")
	for line := range strings.Lines(sections[0]) {
		if line = strings.TrimSuffix(line, "\n"); line != "" && !strings.HasPrefix(line, "#") {
			tree.line(line)
		}
	}
	for _, section := range sections[1:] {
		name, content, ok := strings.Cut(section, " --\n")
		if !ok {
			t.Fatalf("%s: cannot read %q", archive, section)
		}
		tree.write(name, content)
	}
	return tree.root
}

type tree struct {
	t    testing.TB
	root string
}

func (t tree) line(line string) {
	words := strings.Fields(line)
	switch {
	case words[0] == "pci" && len(words) > 1:
		t.pci(words[1], words[2:])
	case words[0] == "net" && len(words) > 2:
		t.net(words[1], words[2], words[3:])
	default:
		if name, target, ok := strings.Cut(line, " -> "); ok {
			t.link(name, target)
		} else if name, ok := strings.CutSuffix(line, ":"); ok {
			t.write(name, "")
		} else if name, content, ok := strings.Cut(line, ": "); ok {
			t.write(name, content)
		} else {
			t.t.Fatalf("cannot read line %q", line)
		}
	}
}

// pci creates a PCI function. Its path begins with the root, "pci0000:00/0000:00:01.0".
func (t tree) pci(path string, attributes []string) {
	dir := "sys/devices/" + path
	t.link("sys/bus/pci/devices/"+filepath.Base(path), "../../../devices/"+path)
	t.attributes(dir, attributes)
}

// net creates an Ethernet interface that is up.
func (t tree) net(path, name string, attributes []string) {
	dir := "sys/devices/" + path + "/net/" + name
	t.link("sys/class/net/"+name, "../../devices/"+path+"/net/"+name)
	t.link(dir+"/device", "../..")
	t.attributes(dir, append([]string{"type=1", "operstate=up"}, attributes...))
}

func (t tree) attributes(dir string, attributes []string) {
	for _, a := range attributes {
		switch key, value, _ := strings.Cut(a, "="); key {
		case "driver":
			t.link(dir+"/driver", "/drivers/"+value)
		case "queues":
			var n int
			if _, err := fmt.Sscan(value, &n); err != nil {
				t.t.Fatal(err)
			}
			for i := range n {
				t.write(fmt.Sprintf("%s/queues/rx-%d/rps_cpus", dir, i), "0")
			}
		default:
			t.write(dir+"/"+key, value)
		}
	}
}

func (t tree) create(name string) string {
	name = filepath.Join(t.root, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.t.Fatal(err)
	}
	return name
}

func (t tree) write(name, content string) {
	if err := os.WriteFile(t.create(name), []byte(content+"\n"), 0o644); err != nil {
		t.t.Fatal(err)
	}
}

// link creates a symbolic link, and its target as a directory, such as a driver's, if it does not exist.
func (t tree) link(name, target string) {
	if err := os.Symlink(target, t.create(name)); err != nil {
		t.t.Fatal(err)
	}
	if filepath.IsAbs(target) {
		return
	}
	if err := os.MkdirAll(filepath.Join(t.root, filepath.Dir(name), target), 0o755); err != nil {
		t.t.Fatal(err)
	}
}
