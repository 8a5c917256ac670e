package main

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"time"
)

// An entry is a file, a directory (its name ends with a slash) or a symbolic link of an archive.
type entry struct {
	name string
	mode int64
	data []byte
	link string
}

// tarball writes the archive of a program for a system: one directory that can be used as it is.
func (r *release) tarball(p program, s system) error {
	binary, err := os.ReadFile(r.binary(p.name, s))
	if err != nil {
		return err
	}
	top := p.name + "-" + r.version + "-" + s.String() + "/"
	entries := []entry{{name: top, mode: 0o755}, {name: top + p.name, mode: 0o755, data: binary}}
	share := map[string][]byte{"LICENSE": r.share["LICENSE"], "THIRD_PARTY_LICENSES": r.notices[p.name]}
	if p.name == "gorun" {
		share, entries = r.share, append(entries, entry{name: top + "horovodrun", link: "gorun"})
	}
	made := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(share)) {
		if name == "gorun-worker@.service" && s.os != "linux" {
			continue
		}
		if dir := path.Dir(name); dir != "." && !made[dir] {
			made[dir] = true
			entries = append(entries, entry{name: top + dir + "/", mode: 0o755})
		}
		entries = append(entries, entry{name: top + name, mode: 0o644, data: share[name]})
	}
	return create(r.file(strings.TrimSuffix(top, "/")+".tar.gz"), func(w io.Writer) error {
		zipped, err := gzip.NewWriterLevel(w, gzip.BestCompression)
		if err != nil {
			return err
		}
		return errors.Join(writeTar(zipped, entries, r.date), zipped.Close())
	})
}

// writeTar writes entries that belong to root and are all of one date.
func writeTar(w io.Writer, entries []entry, date time.Time) error {
	archive := tar.NewWriter(w)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Mode: e.mode, Size: int64(len(e.data)), ModTime: date, Uname: "root", Gname: "root", Typeflag: tar.TypeReg}
		switch {
		case e.link != "":
			h.Typeflag, h.Linkname, h.Mode = tar.TypeSymlink, e.link, 0o777
		case strings.HasSuffix(e.name, "/"):
			h.Typeflag = tar.TypeDir
		}
		if err := archive.WriteHeader(h); err != nil {
			return err
		}
		if _, err := archive.Write(e.data); err != nil {
			return err
		}
	}
	return archive.Close()
}

// create writes a file, and removes it if that fails.
func create(path string, write func(io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := errors.Join(write(f), f.Close()); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}
