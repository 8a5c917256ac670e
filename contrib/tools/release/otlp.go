package main

import (
	"os"

	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/files"
)

// otlpName is the program that pushes metrics by OTLP. Its libraries would make gorun a third larger.
const otlpName = "gorun-otlp"

// otlp writes the files of that program for a system: a tarball, and packages for Linux.
func (r *release) otlp(s system) error {
	binary, err := os.ReadFile(r.program(otlpName, s))
	if err != nil {
		return err
	}
	top := otlpName + "-" + r.version + "-" + s.String() + "/"
	if err := r.archive(top, []entry{{name: top, mode: 0o755}, {name: top + otlpName, mode: 0o755, data: binary},
		{name: top + "LICENSE", mode: 0o644, data: r.share["LICENSE"]},
		{name: top + "THIRD_PARTY_LICENSES", mode: 0o644, data: r.notices}}); err != nil || s.os != "linux" {
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
		{"/usr/bin/" + otlpName, 0o755, binary},
		{"/usr/share/doc/" + otlpName + "/copyright", 0o644, r.share["LICENSE"]},
		{"/usr/share/doc/" + otlpName + "/THIRD_PARTY_LICENSES", 0o644, r.notices},
	} {
		if err := p.add(f.path, f.mode, files.TypeFile, f.data); err != nil {
			return err
		}
	}
	const summary = "Pushes the metrics of gorun to OpenTelemetry"
	for _, format := range []string{"deb", "rpm"} {
		if err := r.write(format, nfpm.WithDefaults(&nfpm.Info{
			Name: otlpName, Arch: s.arch, Platform: "linux", Version: r.version, VersionSchema: "semver", Release: "1", MTime: r.date,
			Section: "net", Priority: "optional", License: expression(r.notices), Maintainer: "The gorun authors",
			Vendor:      "The gorun authors",
			Description: summary + "\ngorun --otlp starts it. It reads what gorun serves for Prometheus and sends it by OTLP over HTTP.",
			Overridables: nfpm.Overridables{
				Contents: p.contents,
				RPM:      nfpm.RPM{Group: "Applications/Engineering", Summary: summary, BuildHost: "localhost", Compression: "gzip:9"},
				Deb:      nfpm.Deb{Compression: "gzip"},
			},
		})); err != nil {
			return err
		}
	}
	return nil
}
