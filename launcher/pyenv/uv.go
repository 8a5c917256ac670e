package pyenv

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// pinned is the uv that gorun gets where there is none, with the hashes of its wheels.
//
//go:embed uv.txt
var pinned string

// recent matches versions of uv that do all of this: 0.8 and newer.
var recent = regexp.MustCompile(`^uv (0\.([89]|\d\d+)|[1-9]\d*)\.`)

// uv returns the path of uv: the user's own, or the one that pip gets once.
func (m *Maker) uv(ctx context.Context) (string, error) {
	if path, err := exec.LookPath("uv"); err == nil && runsUV(ctx, path) {
		return path, nil
	}
	at := filepath.Join(m.dir, hashOf(pinned))
	path := filepath.Join(at, "bin", "uv")
	runs := func() bool { return runsUV(ctx, path) }
	if runs() {
		return path, used(at)
	}
	err := m.atomically(at, runs, func(dir string) error {
		file := filepath.Join(dir, "uv.txt")
		if err := os.WriteFile(file, []byte(pinned), 0o600); err != nil {
			return err
		}
		// -m takes modules of the working directory first: that is not the user's.
		return run(ctx, dir, m.env, "python3", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps",
			"--only-binary", ":all:", "--require-hashes", "--target", dir, "-r", file)
	})
	if err != nil && ctx.Err() == nil {
		err = wrong("install uv 0.8 or newer", "get uv, which is not installed here, by pip: %w", err)
	}
	return path, err
}

func runsUV(ctx context.Context, path string) bool {
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	return err == nil && recent.Match(out)
}

// used notes that a directory is used now, for gorun clean.
func used(dir string) error {
	now := time.Now()
	return os.Chtimes(dir, now, now)
}

// atomically has fill make a directory, which has its name only once it is whole, in place of one that is not.
func (m *Maker) atomically(at string, whole func() bool, fill func(dir string) error) error {
	partial := filepath.Join(m.dir, hashOf(at, time.Now().String(), fmt.Sprint(os.Getpid()))) // gorun clean knows it if this process dies
	if err := os.MkdirAll(partial, 0o700); err != nil {
		return err
	}
	defer os.RemoveAll(partial) // unless it has its name by then
	if err := fill(partial); err != nil {
		return err
	}
	if !whole() { // else another launcher has made it meanwhile
		if err := errors.Join(os.RemoveAll(at), os.Rename(partial, at)); err != nil && !whole() {
			return err
		}
	}
	if !whole() {
		return wrong("remove that directory", "%s does not work", at)
	}
	return nil
}

func hashOf(parts ...string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q", parts))
	return hex.EncodeToString(sum[:])
}

var (
	credentials = regexp.MustCompile("://[^\\s\"'`]*@") // a password may hold any of /:?#@
	cause       = regexp.MustCompile(`\s*\n\s*cause: `)
)

// run runs a program in a directory. Its error is what the program says, in one line and without secrets.
func run(ctx context.Context, dir string, env []string, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env, cmd.WaitDelay = dir, env, time.Second
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	err := cmd.Run()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	text, _, _ := strings.Cut(stderr.String(), "\nhint:")
	text = strings.TrimPrefix(cause.ReplaceAllString(text, ": "), "error: ")
	if text = credentials.ReplaceAllString(strings.Join(strings.Fields(text), " "), "://"); err != nil && text != "" {
		return errors.New(text)
	}
	return err
}
