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

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // registers itself
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm"
)

// program is one of the release. gorun-kubernetes is one of its own because its libraries would make gorun much larger.
type program struct {
	name, dir            string // of its module
	summary, description string
}

var programs = []program{
	{"gorun", "cmd/gorun", "Launcher and worker daemon for data-parallel training",
		"gorun starts a Horovod, torch.distributed or MPI job on many hosts and runs its collectives.\nIt replaces horovodrun and mpirun."},
	{"gorun-kubernetes", "contrib/kubernetes", "Runs jobs of gorun in Kubernetes",
		"gorun --kubernetes starts it. It makes a JobSet of a command line, shows its output and deletes it."},
}

// pack writes a package for a Linux distribution.
func (r *release) pack(p program, format string, s system) error {
	stage, err := os.MkdirTemp("", "gorun-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(stage)
	held, err := r.contents(p, format, s)
	if err != nil {
		return err
	}
	about := &nfpm.Info{
		Name: p.name, Arch: s.arch, Platform: "linux", Version: r.version, VersionSchema: "semver", Release: "1", MTime: r.date,
		Section: "net", Priority: "optional", License: expression(r.notices[p.name]), Maintainer: "The gorun authors", Vendor: "The gorun authors",
		Description: p.summary + "\n" + p.description,
		Overridables: nfpm.Overridables{
			RPM: nfpm.RPM{Group: "Applications/Engineering", Summary: p.summary, BuildHost: "localhost", Compression: "gzip:9"},
			Deb: nfpm.Deb{Compression: "gzip"},
		},
	}
	for _, f := range held { // nfpm reads files, so what is made here is written to a directory first
		source := filepath.Join(stage, strings.ReplaceAll(f.path, "/", "_"))
		if err := os.WriteFile(source, f.data, 0o644); err != nil {
			return err
		}
		about.Contents = append(about.Contents, &files.Content{Source: source, Destination: f.path, Type: f.kind, FileInfo: r.info(f.mode)})
	}
	if p.name == "gorun" {
		scripts := filepath.Join(r.root, "contrib", "packaging")
		about.Contents = append(about.Contents, &files.Content{Destination: "/etc/gorun", Type: files.TypeDir, FileInfo: r.info(0o755)})
		about.Scripts = nfpm.Scripts{PostInstall: filepath.Join(scripts, "postinstall.sh"), PreRemove: filepath.Join(scripts, "preremove.sh"),
			PostRemove: filepath.Join(scripts, "postremove.sh")}
		about.Recommends = []string{"python3"} // ranks need a Python, but not always this one
	}
	packager, err := nfpm.Get(format)
	if err != nil {
		return err
	}
	about = nfpm.WithDefaults(about)
	if err := nfpm.PrepareForPackager(about, format); err != nil {
		return err
	}
	return create(r.file(packager.ConventionalFileName(about)), func(w io.Writer) error { return packager.Package(about, w) })
}

func (r *release) info(mode os.FileMode) *files.ContentFileInfo {
	return &files.ContentFileInfo{Owner: "root", Group: "root", Mode: mode, MTime: r.date}
}

// packed is a file of a package.
type packed struct {
	path string
	data []byte
	mode os.FileMode
	kind string
}

// contents returns the files of a package.
func (r *release) contents(p program, format string, s system) ([]packed, error) {
	binary, err := os.ReadFile(r.binary(p.name, s))
	if err != nil {
		return nil, err
	}
	doc := "/usr/share/doc/" + p.name + "/"
	all := []packed{{"/usr/bin/" + p.name, binary, 0o755, files.TypeFile}}
	add := func(path string, data []byte) { all = append(all, packed{path, data, 0o644, files.TypeFile}) }
	add(doc+"copyright", r.share["LICENSE"])
	add(doc+"THIRD_PARTY_LICENSES", r.notices[p.name])
	if p.name != "gorun" {
		return all, nil
	}
	conf, err := os.ReadFile(filepath.Join(r.root, "contrib", "packaging", "worker.conf"))
	all = append(all, packed{"/etc/gorun/worker.conf", conf, 0o644, files.TypeConfigNoReplace})
	add("/usr/lib/systemd/system/gorun-worker@.service", packagedUnit(r.share["gorun-worker@.service"]))
	add("/usr/share/man/man1/gorun.1.gz", zipped(r.share["gorun.1"]))
	add("/usr/share/bash-completion/completions/gorun", r.share["gorun.bash"])
	add(map[string]string{"deb": "/usr/share/zsh/vendor-completions/_gorun", "rpm": "/usr/share/zsh/site-functions/_gorun"}[format], r.share["gorun.zsh"])
	add("/usr/share/fish/vendor_completions.d/gorun.fish", r.share["gorun.fish"])
	add(doc+"README.md", r.share["README.md"])
	add(doc+"CHANGELOG.md.gz", zipped(r.share["CHANGELOG.md"]))
	for _, name := range slices.Sorted(maps.Keys(r.share)) {
		switch part, _, _ := strings.Cut(name, "/"); part {
		case "examples":
			add(doc+name, r.share[name])
		case "c", "grafana":
			add("/usr/share/gorun/"+name, r.share[name])
		}
	}
	return all, err
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
func zipped(data []byte) []byte {
	var out bytes.Buffer
	w, _ := gzip.NewWriterLevel(&out, gzip.BestCompression) // memory takes all
	w.Write(data)
	w.Close()
	return out.Bytes()
}
