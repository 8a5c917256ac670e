package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const changes = `# Changelog
## [Unreleased]
- Not yet.
## [1.2.0] - 2026-11-29
### Added
- It counts.
## [1.1.0] - 2026-10-01
## [1.0.0]
- No date.

[1.2.0]: https://example.org
`

// check ends the test if there is an error.
func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// source is a repository with a changelog and what else the end of a release reads, and a release of it.
func source(t *testing.T, version string) *release {
	t.Helper()
	r := &release{version: version, revision: "0123", date: time.Unix(1790000000, 0), root: t.TempDir(), out: t.TempDir()}
	for name, text := range map[string]string{
		filepath.Join(r.root, "CHANGELOG.md"):                               changes,
		filepath.Join(r.root, "contrib/tools/requirements/zig-0.1.txt"):     "",
		filepath.Join(r.out, "gorun-1.2.0-linux-amd64.tar.gz"):              "a tarball",
		filepath.Join(r.out, "gorun-1.2.0-py3-none-manylinux_2_17_any.whl"): "a wheel",
	} {
		check(t, os.MkdirAll(filepath.Dir(name), 0o755))
		check(t, os.WriteFile(name, []byte(text), 0o644))
	}
	run(t, r.root, "git", "init", "-q")
	run(t, r.root, "git", "add", "-A")
	run(t, r.root, "git", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "a")
	return r
}

func run(t *testing.T, dir string, command ...string) []byte {
	t.Helper()
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v: %s", command, err, out)
	}
	return out
}

// TestRefuse: a version is cut from a clean commit, with notes that have a date, once. A rehearsal always may be.
func TestRefuse(t *testing.T) {
	dirty := func(t *testing.T, r *release) {
		check(t, os.WriteFile(filepath.Join(r.root, "new.go"), nil, 0o644))
	}
	tagged := func(t *testing.T, r *release) { run(t, r.root, "git", "tag", "v1.2.0") }
	for _, test := range []struct {
		name, version string
		change        func(*testing.T, *release)
		want          string // of the error; none
	}{
		{"Good", "1.2.0", nil, ""},
		{"Dirty", "1.2.0", dirty, "files differ from the commit"},
		{"Tagged", "1.2.0", tagged, "the tag v1.2.0 exists"},
		{"NoNotes", "1.3.0", nil, `no text under "## [1.3.0] - YYYY-MM-DD"`},
		{"EmptyNotes", "1.1.0", nil, `no text under "## [1.1.0] - YYYY-MM-DD"`},
		{"NoDate", "1.0.0", nil, `no text under "## [1.0.0] - YYYY-MM-DD"`},
		{"OtherVersion", "1x2.0", nil, `"1x2.0" is no version`},
		{"NoKey", "1.2.0", func(t *testing.T, r *release) { r.key = filepath.Join(r.root, "none") }, "find the key to sign with"},
		{"Rehearsal", "0.0.0+5.g0123", dirty, ""},
		{"NoGit", "1.2.0", func(t *testing.T, r *release) { dirty(t, r); run(t, r.root, "rm", "-r", ".git") }, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := source(t, test.version)
			if test.change != nil {
				test.change(t, r)
			}
			if err := r.refuse(); (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

// TestSigned: notes and provenance are files like others, whose sums a key signs. Who changes a sum is found out.
func TestSigned(t *testing.T) {
	r := source(t, "1.2.0")
	r.key = filepath.Join(r.root, "key")
	run(t, r.root, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", r.key)
	var said bytes.Buffer
	for _, step := range []func() error{r.notes, r.provenance, r.sum, func() error { return r.sign(&said) }} {
		check(t, step())
	}
	if got, err := os.ReadFile(r.file("gorun-1.2.0-notes.md")); err != nil || string(got) != "# gorun 1.2.0\n\n### Added\n- It counts.\n" {
		t.Errorf("the notes are %q, %v", got, err)
	}
	data, err := os.ReadFile(r.file("gorun-1.2.0.provenance.json"))
	check(t, err)
	var s struct {
		Subject   []struct{ Name string }
		Predicate struct {
			BuildDefinition struct {
				ResolvedDependencies []struct {
					URI    string
					Digest map[string]string
				}
			}
		}
	}
	if err := json.Unmarshal(data, &s); err != nil || len(s.Subject) != 3 || s.Predicate.BuildDefinition.ResolvedDependencies[0].Digest["gitCommit"] != "0123" ||
		s.Predicate.BuildDefinition.ResolvedDependencies[2].URI != "pkg:pypi/ziglang@0.1" {
		t.Errorf("the provenance is %s, %v", data, err)
	}
	if lines := run(t, r.out, "sha256sum", "-c", "SHA256SUMS"); bytes.Count(lines, []byte(": OK\n")) != 4 {
		t.Errorf("sha256sum says %s", lines)
	}
	public, err := os.ReadFile(r.key + ".pub")
	check(t, err)
	check(t, os.WriteFile(r.file("allowed"), append([]byte("gorun "), public...), 0o644))
	verify := "ssh-keygen -Y verify -f allowed -I gorun -n gorun -s SHA256SUMS.sig"
	run(t, r.out, "sh", "-euc", verify+" <SHA256SUMS; ! sed 's/^./x/' SHA256SUMS | "+verify)
	if want := "user.signingKey=" + r.key + " tag -s v1.2.0 -m 'gorun 1.2.0' 0123, push"; !strings.Contains(said.String(), want) {
		t.Errorf("it says %q, not %q", said.String(), want)
	}
	r.key = ""
	said.Reset()
	if err := r.sign(&said); err != nil || strings.Count(said.String(), "is not signed: RELEASE_KEY=FILE") != 1 {
		t.Errorf("without a key it says %q, %v", said.String(), err)
	}
}
