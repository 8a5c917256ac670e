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
	"cmp"
	"flag"
	"fmt"
	"io/fs"
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
		for _, p := range programs {
			if err := r.tarball(p, s); err != nil {
				return fmt.Errorf("make tarball of %s for %s: %w", p.name, s, err)
			}
			for _, format := range []string{"deb", "rpm"} {
				if s.os != "linux" {
					continue
				}
				if err := r.pack(p, format, s); err != nil {
					return fmt.Errorf("make %s of %s for %s: %w", format, p.name, s, err)
				}
			}
		}
	}
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"make image", r.image}, {"make bill of materials", r.bill}, {"cut notes", r.notes}, {"write provenance", r.provenance}, {"write checksums", r.sum},
	} {
		if err := step.do(); err != nil {
			return fmt.Errorf("%s: %w", step.what, err)
		}
	}
	return r.sign(os.Stdout)
}

// binary returns the path of a program's binary for a system.
func (r *release) binary(name string, s system) string {
	return filepath.Join(r.bin, name+"-"+s.String())
}

// file returns the path of a file of the release.
func (r *release) file(name string) string { return filepath.Join(r.out, name) }

// gather reads what accompanies the binary. The manual and the completions come from the binary of this machine, which
// must have the version of the release.
func (r *release) gather() error {
	own := r.binary("gorun", system{runtime.GOOS, runtime.GOARCH})
	said, err := exec.Command(own, "version").Output()
	if err != nil {
		return fmt.Errorf("run %s version: %w", own, err)
	}
	if got := strings.TrimSpace(string(said)); got != "gorun "+r.version {
		return fmt.Errorf("%s is %q, not of version %s", own, got, r.version)
	}
	r.notices = map[string][]byte{}
	for _, p := range programs {
		if r.notices[p.name], err = os.ReadFile(filepath.Join(r.root, p.dir, "THIRD_PARTY_LICENSES")); err != nil {
			return err
		}
	}
	r.share = map[string][]byte{}
	for name, args := range map[string][]string{
		"gorun.1": {"man"}, "gorun.bash": {"completion", "bash"}, "gorun.zsh": {"completion", "zsh"}, "gorun.fish": {"completion", "fish"},
	} {
		if r.share[name], err = exec.Command(own, args...).Output(); err != nil {
			return fmt.Errorf("run %s %s: %w", own, strings.Join(args, " "), err)
		}
	}
	for _, path := range []string{
		"LICENSE", "README.md", "CHANGELOG.md", "cmd/gorun/THIRD_PARTY_LICENSES", "contrib/systemd/gorun-worker@.service",
		"contrib/c/gorun.h", "contrib/c/gorun.c", "contrib/c/example.c", "contrib/c/session/*.h",
		"contrib/examples/digits_numpy.py", "contrib/examples/digits_torch.py",
		"contrib/grafana/*.json", "contrib/grafana/alerts.yaml", "contrib/grafana/prometheus.yaml",
	} {
		found, err := filepath.Glob(filepath.Join(r.root, path))
		if err != nil || len(found) == 0 {
			return fmt.Errorf("find %s: %w", path, cmp.Or(err, fs.ErrNotExist))
		}
		for _, file := range found {
			name, is := strings.CutPrefix(filepath.Join(filepath.Dir(path), filepath.Base(file)), "contrib/")
			if !is || strings.HasPrefix(name, "systemd/") {
				name = filepath.Base(file)
			}
			if r.share[name], err = os.ReadFile(file); err != nil {
				return err
			}
		}
	}
	return nil
}
