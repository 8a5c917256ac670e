package main

import (
	"bytes"
	"cmp"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// image writes an OCI archive with an image for each Linux system. It holds the binary and nothing else that runs, so it
// needs no base: other images copy /usr/bin/gorun from it, and it starts jobs whose ranks run elsewhere.
func (r *release) image() error {
	dir, err := os.MkdirTemp("", "gorun-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	index := v1.ImageIndex(mutate.IndexMediaType(empty.Index, types.OCIImageIndex))
	for _, s := range systems {
		if s.os != "linux" {
			continue
		}
		image, err := r.imageFor(s)
		if err != nil {
			return err
		}
		platform := &v1.Platform{OS: s.os, Architecture: s.arch}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: platform}})
	}
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	// A tag may not contain a plus.
	tag := strings.ReplaceAll(r.version, "+", "_")
	if err := path.AppendIndex(index, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": tag})); err != nil {
		return err
	}
	entries, err := readTree(dir)
	if err != nil {
		return err
	}
	return create(r.file("gorun-"+r.version+"-oci.tar"), func(w io.Writer) error { return writeTar(w, entries, r.date) })
}

// imageFor returns the image for one system.
func (r *release) imageFor(s system) (v1.Image, error) {
	binary, err := os.ReadFile(r.binary("gorun", s))
	if err != nil {
		return nil, err
	}
	doc := "usr/share/doc/gorun/"
	var files bytes.Buffer
	if err := writeTar(&files, []entry{
		{name: "etc/", mode: 0o755},
		{name: "etc/passwd", mode: 0o644, data: []byte("root:x:0:0:root:/root:/usr/bin/gorun\nnobody:x:65534:65534:nobody:/tmp:/usr/bin/gorun\n")},
		{name: "root/", mode: 0o700},
		{name: "tmp/", mode: 0o1777},
		{name: "usr/", mode: 0o755},
		{name: "usr/bin/", mode: 0o755},
		{name: "usr/bin/gorun", mode: 0o755, data: binary},
		{name: "usr/bin/horovodrun", link: "gorun"},
		{name: "usr/share/", mode: 0o755},
		{name: "usr/share/doc/", mode: 0o755},
		{name: doc, mode: 0o755},
		{name: doc + "LICENSE", mode: 0o644, data: r.share["LICENSE"]},
		{name: doc + "THIRD_PARTY_LICENSES", mode: 0o644, data: r.share["THIRD_PARTY_LICENSES"]},
	}, r.date); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(files.Bytes())), nil },
		tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err = mutate.Append(image, mutate.Addendum{Layer: layer, MediaType: types.OCILayer,
		History: v1.History{Created: v1.Time{Time: r.date}, CreatedBy: "gorun " + r.version}})
	if err != nil {
		return nil, err
	}
	return mutate.ConfigFile(image, r.config(image, s))
}

// config returns the configuration of an image whose layer is there.
func (r *release) config(image v1.Image, s system) *v1.ConfigFile {
	c, err := image.ConfigFile()
	if err != nil {
		panic(err) // of an image in memory
	}
	c = c.DeepCopy()
	c.OS, c.Architecture, c.Created = s.os, s.arch, v1.Time{Time: r.date}
	c.Config.Entrypoint = []string{"/usr/bin/gorun"}
	c.Config.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"}
	c.Config.Labels = map[string]string{
		"org.opencontainers.image.title":    "gorun",
		"org.opencontainers.image.version":  r.version,
		"org.opencontainers.image.revision": r.revision,
		"org.opencontainers.image.licenses": expression(r.share["THIRD_PARTY_LICENSES"]),
	}
	return c
}

// readTree returns the contents of a directory, in an order that does not change.
func readTree(dir string) ([]entry, error) {
	var entries []entry
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if e.IsDir() {
			entries = append(entries, entry{name: filepath.ToSlash(name) + "/", mode: 0o755})
			return nil
		}
		data, err := os.ReadFile(path)
		entries = append(entries, entry{name: filepath.ToSlash(name), mode: 0o644, data: data})
		return err
	})
	slices.SortFunc(entries, func(a, b entry) int { return cmp.Compare(a.name, b.name) })
	return entries, err
}
