package main

import (
	"os"

	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/files"
)

// companion is a program beside gorun, with files of its own: its libraries would make gorun much larger.
type companion struct {
	name, dir            string // of its module
	summary, description string
}

var companions = []companion{
	{"gorun-kubernetes", "contrib/kubernetes", "Runs jobs of gorun in Kubernetes",
		"gorun --kubernetes starts it. It makes a JobSet of a command line, shows its output and deletes it."},
}

// companion writes the files of such a program for a system: a tarball, and packages for Linux.
func (r *release) companion(c companion, s system) error {
	binary, err := os.ReadFile(r.program(c.name, s))
	if err != nil {
		return err
	}
	top := c.name + "-" + r.version + "-" + s.String() + "/"
	if err := r.archive(top, []entry{{name: top, mode: 0o755}, {name: top + c.name, mode: 0o755, data: binary},
		{name: top + "LICENSE", mode: 0o644, data: r.share["LICENSE"]},
		{name: top + "THIRD_PARTY_LICENSES", mode: 0o644, data: r.notices[c.name]}}); err != nil || s.os != "linux" {
		return err
	}
	stage, err := os.MkdirTemp("", "gorun-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(stage)
	p := staged{dir: stage, date: r.date}
	for _, f := range []struct {
		path string
		mode os.FileMode
		data []byte
	}{
		{"/usr/bin/" + c.name, 0o755, binary},
		{"/usr/share/doc/" + c.name + "/copyright", 0o644, r.share["LICENSE"]},
		{"/usr/share/doc/" + c.name + "/THIRD_PARTY_LICENSES", 0o644, r.notices[c.name]},
	} {
		if err := p.add(f.path, f.mode, files.TypeFile, f.data); err != nil {
			return err
		}
	}
	for _, format := range []string{"deb", "rpm"} {
		if err := r.write(format, nfpm.WithDefaults(&nfpm.Info{
			Name: c.name, Arch: s.arch, Platform: "linux", Version: r.version, VersionSchema: "semver", Release: "1", MTime: r.date,
			Section: "net", Priority: "optional", License: expression(r.notices[c.name]), Maintainer: "The gorun authors",
			Vendor:      "The gorun authors",
			Description: c.summary + "\n" + c.description,
			Overridables: nfpm.Overridables{
				Contents: p.contents,
				RPM:      nfpm.RPM{Group: "Applications/Engineering", Summary: c.summary, BuildHost: "localhost", Compression: "gzip:9"},
				Deb:      nfpm.Deb{Compression: "gzip"},
			},
		})); err != nil {
			return err
		}
	}
	return nil
}
