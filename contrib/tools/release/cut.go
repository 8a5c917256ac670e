package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
)

// refuse tells why this source may not become the version. A version with a plus is a rehearsal, which always may.
func (r *release) refuse() error {
	if strings.Contains(r.version, "+") {
		return nil
	}
	if !regexp.MustCompile(`^\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`).MatchString(r.version) {
		return fmt.Errorf("%q is no version, as 1.2.3 is", r.version)
	}
	if _, err := r.notesOf(); err != nil {
		return err
	}
	if _, err := os.Stat(r.key); r.key != "" && err != nil {
		return fmt.Errorf("find the key to sign with: %w", err)
	}
	if _, err := os.Stat(filepath.Join(r.root, ".git")); err != nil {
		return nil // a source without git: nothing says what it differs from
	}
	changed, err := r.git("status", "--porcelain")
	if err == nil && changed != "" {
		err = fmt.Errorf("files differ from the commit, so nobody else could make these: commit or remove\n%s", changed)
	}
	tag, tagErr := r.git("tag", "--list", "v"+r.version)
	if tagErr == nil && tag != "" {
		tagErr = fmt.Errorf("the tag %s exists: take another version, or check it out and make release without VERSION", tag)
	}
	return errors.Join(err, tagErr)
}

// git returns what git prints about the source.
func (r *release) git(args ...string) (string, error) {
	out, err := exec.Command("git", append([]string{"-C", r.root}, args...)...).Output()
	if err != nil {
		return "", fmt.Errorf("run git %s: %w", args[0], err)
	}
	return strings.TrimRight(string(out), "\n"), nil
}

// notesOf returns what the changelog says about the version; about what is unreleased, for a rehearsal.
func (r *release) notesOf() ([]byte, error) {
	changes, err := os.ReadFile(filepath.Join(r.root, "CHANGELOG.md"))
	if err != nil {
		return nil, err
	}
	heading, rehearsal := `\[`+regexp.QuoteMeta(r.version)+`\] - \d{4}-\d\d-\d\d`, strings.Contains(r.version, "+")
	if rehearsal {
		heading = `\[Unreleased\]`
	}
	section := regexp.MustCompile(`(?ms)^## ` + heading + `\n(.*?)(?:^## |^\[[^\]\n]+\]: |\z)`).FindSubmatch(changes)
	if section == nil || len(strings.TrimSpace(string(section[1]))) == 0 && !rehearsal {
		return nil, fmt.Errorf("CHANGELOG.md has no text under \"## [%s] - YYYY-MM-DD\": move there what is under Unreleased, and commit", r.version)
	}
	return []byte("# gorun " + r.version + "\n\n" + strings.TrimSpace(string(section[1])) + "\n"), nil
}

// notes writes what is new.
func (r *release) notes() error {
	text, err := r.notesOf()
	if err != nil {
		return err
	}
	return os.WriteFile(r.file("gorun-"+r.version+"-notes.md"), text, 0o644)
}

// provenance writes from what all files were made: a statement of in-toto whose predicate is SLSA's. It names no place and no
// time, so that everybody makes the same one. The signature of SHA256SUMS is also its own.
func (r *release) provenance() error {
	sums, err := r.sums()
	if err != nil {
		return err
	}
	var subjects []object
	for _, s := range sums {
		subjects = append(subjects, object{"name": s.name, "digest": object{"sha256": s.sum}})
	}
	sources := []object{
		{"name": "source", "digest": object{"gitCommit": r.revision}},
		{"name": "go", "uri": "pkg:golang/stdlib@" + strings.TrimPrefix(runtime.Version(), "go")},
	}
	zig, err := filepath.Glob(filepath.Join(r.root, "contrib/tools/requirements/zig-*.txt"))
	if err != nil || len(zig) != 1 {
		return errors.New("contrib/tools/requirements names no version of zig, or several")
	}
	version := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(zig[0]), "zig-"), ".txt")
	sources = append(sources, object{"name": "zig", "uri": "pkg:pypi/ziglang@" + version})
	return r.writeJSON("gorun-"+r.version+".provenance.json", object{
		"_type": "https://in-toto.io/Statement/v1", "subject": subjects, "predicateType": "https://slsa.dev/provenance/v1",
		"predicate": object{
			"buildDefinition": object{
				"buildType":            "urn:gorun:make-release:1",
				"externalParameters":   object{"version": r.version},
				"internalParameters":   object{"SOURCE_DATE_EPOCH": r.date.Unix()},
				"resolvedDependencies": sources,
			},
			"runDetails": object{"builder": object{"id": "urn:gorun:maintainer"}},
		},
	})
}

// sign signs the checksums by the key, which may be one of an agent, and says what is left to do.
func (r *release) sign(out io.Writer) error {
	tag := "git tag -s"
	if r.key == "" {
		fmt.Fprintf(out, "release: %s is not signed: RELEASE_KEY=FILE names the ssh key to sign it with\n", r.file("SHA256SUMS"))
	} else {
		cmd := exec.Command("ssh-keygen", "-q", "-Y", "sign", "-f", r.key, "-n", "gorun", r.file("SHA256SUMS"))
		cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, out, os.Stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("sign SHA256SUMS by %s: %w", r.key, err)
		}
		tag = "git -c gpg.format=ssh -c user.signingKey=" + r.key + " tag -s"
	}
	if !strings.Contains(r.version, "+") {
		fmt.Fprintf(out, "Next, as root: make release-check release-again VERSION=%[1]s\n"+
			"Then: %[2]s v%[1]s -m 'gorun %[1]s' %[3]s, push the tag, and publish %[4]s.\n", r.version, tag, r.revision, r.out)
	}
	return nil
}
