package main

import (
	"bytes"
	"compress/gzip"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // registers itself
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm"
)

// pack writes a package for a Linux distribution.
func (r *release) pack(format string, s system) error {
	stage, err := os.MkdirTemp("", "gorun-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(stage)
	p := staged{dir: stage, date: r.date}
	if err := r.stage(&p, format, s); err != nil {
		return err
	}
	scripts := filepath.Join(r.root, "contrib", "packaging")
	info := nfpm.WithDefaults(&nfpm.Info{
		Name: "gorun", Arch: s.arch, Platform: "linux", Version: r.version, VersionSchema: "semver", Release: "1", MTime: r.date,
		Section: "net", Priority: "optional", License: expression(r.share["THIRD_PARTY_LICENSES"]), Maintainer: "The gorun authors",
		Vendor: "The gorun authors",
		Description: "Launcher and worker daemon for data-parallel training\n" +
			"gorun starts a Horovod, torch.distributed or MPI job on many hosts and runs its collectives.\n" +
			"It replaces horovodrun and mpirun.",
		Overridables: nfpm.Overridables{
			Contents: p.contents,
			Scripts: nfpm.Scripts{PostInstall: filepath.Join(scripts, "postinstall.sh"), PreRemove: filepath.Join(scripts, "preremove.sh"),
				PostRemove: filepath.Join(scripts, "postremove.sh")},
			RPM: nfpm.RPM{Group: "Applications/Engineering", Summary: "Launcher and worker daemon for data-parallel training", BuildHost: "localhost", Compression: "gzip:9"},
			Deb: nfpm.Deb{Compression: "gzip"},
			// Ranks need a Python, but not always this one.
			Recommends: []string{"python3"},
		},
	})
	return r.write(format, info)
}

// write makes the file of a package.
func (r *release) write(format string, info *nfpm.Info) error {
	packager, err := nfpm.Get(format)
	if err != nil {
		return err
	}
	if err := nfpm.PrepareForPackager(info, format); err != nil {
		return err
	}
	return create(r.file(packager.ConventionalFileName(info)), func(w io.Writer) error { return packager.Package(info, w) })
}

// staged collects the contents of a package. nfpm reads files, so what is made here is written to a directory first.
type staged struct {
	dir      string
	date     time.Time
	contents files.Contents
}

// add adds a file to the package.
func (p *staged) add(path string, mode os.FileMode, kind string, data []byte) error {
	source := filepath.Join(p.dir, strings.ReplaceAll(path, "/", "_"))
	if err := os.WriteFile(source, data, 0o644); err != nil {
		return err
	}
	p.contents = append(p.contents, &files.Content{Source: source, Destination: path, Type: kind, FileInfo: p.info(mode)})
	return nil
}

func (p *staged) info(mode os.FileMode) *files.ContentFileInfo {
	return &files.ContentFileInfo{Owner: "root", Group: "root", Mode: mode, MTime: p.date}
}

// stage collects what a package holds.
func (r *release) stage(p *staged, format string, s system) error {
	zsh := map[string]string{"deb": "/usr/share/zsh/vendor-completions/_gorun", "rpm": "/usr/share/zsh/site-functions/_gorun"}[format]
	doc := "/usr/share/doc/gorun/"
	manual, err := zipped(r.share["gorun.1"])
	if err != nil {
		return err
	}
	changes, err := zipped(r.share["CHANGELOG.md"])
	if err != nil {
		return err
	}
	conf, err := os.ReadFile(filepath.Join(r.root, "contrib", "packaging", "worker.conf"))
	if err != nil {
		return err
	}
	binary, err := os.ReadFile(r.binary(s))
	if err != nil {
		return err
	}
	for _, f := range []struct {
		path string
		mode os.FileMode
		kind string
		data []byte
	}{
		{"/usr/bin/gorun", 0o755, files.TypeFile, binary},
		{"/usr/lib/systemd/system/gorun-worker@.service", 0o644, files.TypeFile, packagedUnit(r.share["gorun-worker@.service"])},
		{"/etc/gorun/worker.conf", 0o644, files.TypeConfigNoReplace, conf},
		{"/usr/share/man/man1/gorun.1.gz", 0o644, files.TypeFile, manual},
		{"/usr/share/bash-completion/completions/gorun", 0o644, files.TypeFile, r.share["gorun.bash"]},
		{zsh, 0o644, files.TypeFile, r.share["gorun.zsh"]},
		{"/usr/share/fish/vendor_completions.d/gorun.fish", 0o644, files.TypeFile, r.share["gorun.fish"]},
		{doc + "copyright", 0o644, files.TypeFile, r.share["LICENSE"]},
		{doc + "THIRD_PARTY_LICENSES", 0o644, files.TypeFile, r.share["THIRD_PARTY_LICENSES"]},
		{doc + "README.md", 0o644, files.TypeFile, r.share["README.md"]},
		{doc + "CHANGELOG.md.gz", 0o644, files.TypeFile, changes},
		{doc + "examples/digits_numpy.py", 0o644, files.TypeFile, r.share["examples/digits_numpy.py"]},
		{doc + "examples/digits_torch.py", 0o644, files.TypeFile, r.share["examples/digits_torch.py"]},
	} {
		if err := p.add(f.path, f.mode, f.kind, f.data); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.share)) {
		if strings.HasPrefix(name, "c/") || strings.HasPrefix(name, "grafana/") {
			if err := p.add("/usr/share/gorun/"+name, 0o644, files.TypeFile, r.share[name]); err != nil {
				return err
			}
		}
	}
	p.contents = append(p.contents, &files.Content{Destination: "/etc/gorun", Type: files.TypeDir, FileInfo: p.info(0o755)})
	return nil
}

// packagedUnit returns the unit for a package: with the package's path, and without the steps that the package does.
func packagedUnit(unit []byte) []byte {
	var out []byte
	for line := range bytes.Lines(unit) {
		if !bytes.HasPrefix(line, []byte("#   install -m")) {
			out = append(out, bytes.ReplaceAll(line, []byte("/usr/local/bin/gorun"), []byte("/usr/bin/gorun"))...)
		}
	}
	return out
}

// zipped returns data as gzip without a name and a time.
func zipped(data []byte) ([]byte, error) {
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(data); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
