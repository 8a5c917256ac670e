// Command release makes the files of a release from binaries that make has built:
//
//	release -version 1.2.3 -date 1790000000 -revision HASH -bin build/release/bin -out build/release/1.2.3
//
// For each system it packs a tarball; for Linux also a deb, an rpm and a part of an OCI image. gorun-kubernetes
// gets tarballs and packages of its own. It writes the changelog's notes, an SPDX bill of materials, which it reads from
// the binaries, the provenance, and at last SHA256SUMS of every file in the output directory, the wheels among them. The
// files do not depend on when or where they are made, so everyone gets the same ones. -key signs the sums. -cut writes
// nothing: it only fails if the source may not become this version.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// A release is what all of its files need to know.
type release struct {
	version  string
	revision string // of the source
	date     time.Time
	root     string // of the source
	bin, out string
	key      string            // file of the ssh key that signs, or nothing
	share    map[string][]byte // what accompanies the binary on every system, by name
	notices  map[string][]byte // the licences of what each program links, by its name
}

// system is an operating system and an architecture, in Go's words.
type system struct{ os, arch string }

var systems = []system{{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}}

func (s system) String() string { return s.os + "-" + s.arch }

func main() {
	var r release
	flag.StringVar(&r.version, "version", "", "`VERSION`, as SemVer")
	flag.StringVar(&r.revision, "revision", "", "`HASH` of the source's commit")
	date := flag.Int64("date", 0, "date of all files, in `SECONDS` since 1970")
	flag.StringVar(&r.root, "root", ".", "`DIRECTORY` of the source")
	flag.StringVar(&r.bin, "bin", "", "`DIRECTORY` with the binaries: gorun-linux-amd64 and so on")
	flag.StringVar(&r.out, "out", "", "`DIRECTORY` for the files, in which wheels may be already")
	flag.StringVar(&r.key, "key", "", "`FILE` of the ssh key that signs, or of its public half if an agent has it")
	cut := flag.Bool("cut", false, "only look whether this source may become the version")
	flag.Parse()
	r.date = time.Unix(*date, 0).UTC()
	if r.version == "" || r.revision == "" || *date == 0 || r.bin == "" || r.out == "" || flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "usage: release -version VERSION -revision HASH -date SECONDS -bin DIRECTORY -out DIRECTORY [-root DIRECTORY] [-key FILE] [-cut]")
		os.Exit(2)
	}
	step := r.make
	if *cut {
		step = r.refuse
	}
	if err := step(); err != nil {
		fmt.Fprintln(os.Stderr, "release: error:", err)
		os.Exit(1)
	}
}

// make writes all files.
func (r *release) make() error {
	if err := r.gather(); err != nil {
		return err
	}
	for _, s := range systems {
		if err := r.tarball(s); err != nil {
			return fmt.Errorf("make tarball for %s: %w", s, err)
		}
		for _, c := range companions {
			if err := r.companion(c, s); err != nil {
				return fmt.Errorf("pack %s for %s: %w", c.name, s, err)
			}
		}
		if s.os != "linux" {
			continue
		}
		for _, format := range []string{"deb", "rpm"} {
			if err := r.pack(format, s); err != nil {
				return fmt.Errorf("make %s for %s: %w", format, s, err)
			}
		}
	}
	if err := r.image(); err != nil {
		return fmt.Errorf("make image: %w", err)
	}
	if err := r.bill(); err != nil {
		return fmt.Errorf("make bill of materials: %w", err)
	}
	if err := r.notes(); err != nil {
		return fmt.Errorf("cut notes: %w", err)
	}
	if err := r.provenance(); err != nil {
		return fmt.Errorf("write provenance: %w", err)
	}
	if err := r.sum(); err != nil {
		return err
	}
	return r.sign(os.Stdout)
}

// binary returns the path of gorun for a system.
func (r *release) binary(s system) string { return r.program("gorun", s) }

// program returns the path of a program's binary for a system.
func (r *release) program(name string, s system) string {
	return filepath.Join(r.bin, name+"-"+s.String())
}

// file returns the path of a file of the release.
func (r *release) file(name string) string { return filepath.Join(r.out, name) }

// gather reads what accompanies the binary. The manual and the completions come from the binary of this machine, which
// must have the version of the release.
func (r *release) gather() error {
	own := r.binary(system{runtime.GOOS, runtime.GOARCH})
	said, err := exec.Command(own, "version").Output()
	if err != nil {
		return fmt.Errorf("run %s version: %w", own, err)
	}
	if got := strings.TrimSpace(string(said)); got != "gorun "+r.version {
		return fmt.Errorf("%s is %q, not of version %s", own, got, r.version)
	}
	r.notices = map[string][]byte{}
	for _, c := range append([]companion{{name: "gorun", dir: "cmd/gorun"}}, companions...) {
		if r.notices[c.name], err = os.ReadFile(filepath.Join(r.root, c.dir, "THIRD_PARTY_LICENSES")); err != nil {
			return err
		}
	}
	r.share = map[string][]byte{}
	parts, err := filepath.Glob(filepath.Join(r.root, "contrib/c/session/*.h"))
	if err != nil || len(parts) == 0 {
		return fmt.Errorf("find the parts of gorun.c: %d: %w", len(parts), err)
	}
	for _, part := range parts {
		if r.share["c/session/"+filepath.Base(part)], err = os.ReadFile(part); err != nil {
			return err
		}
	}
	for name, args := range map[string][]string{
		"gorun.1": {"man"}, "gorun.bash": {"completion", "bash"}, "gorun.zsh": {"completion", "zsh"}, "gorun.fish": {"completion", "fish"},
	} {
		if r.share[name], err = exec.Command(own, args...).Output(); err != nil {
			return fmt.Errorf("run %s %s: %w", own, strings.Join(args, " "), err)
		}
	}
	for name, path := range map[string]string{
		"LICENSE": "LICENSE", "THIRD_PARTY_LICENSES": "cmd/gorun/THIRD_PARTY_LICENSES",
		"README.md": "README.md", "CHANGELOG.md": "CHANGELOG.md",
		"c/gorun.h": "contrib/c/gorun.h", "c/gorun.c": "contrib/c/gorun.c", "c/example.c": "contrib/c/example.c",
		"examples/digits_numpy.py": "contrib/examples/digits_numpy.py", "examples/digits_torch.py": "contrib/examples/digits_torch.py",
		"grafana/gorun.json": "contrib/grafana/gorun.json", "grafana/alerts.yaml": "contrib/grafana/alerts.yaml",
		"grafana/cluster.json":    "contrib/grafana/cluster.json",
		"grafana/prometheus.yaml": "contrib/grafana/prometheus.yaml",
		"gorun-worker@.service":   "contrib/systemd/gorun-worker@.service",
	} {
		if r.share[name], err = os.ReadFile(filepath.Join(r.root, path)); err != nil {
			return err
		}
	}
	return nil
}
