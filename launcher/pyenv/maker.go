// Package pyenv makes the environment of Python that hosts get for a job: on the launcher's machine, by uv, for the Python that the
// hosts have. Hosts get its files as they get those of the program.
package pyenv

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"gorun/launcher/ship"
	"gorun/launcher/talk"
	"gorun/rendezvous/wire"
)

// Maker makes the environment once, when the hosts have said which Python they have.
type Maker struct {
	source *Source
	dir    string // of environments that were made
	hosts  int    // how many have to say it before
	env    []string
	note   func(format string, args ...any)

	mu    sync.Mutex
	asked []asked
	all   chan struct{} // closed when they have

	made   chan struct{} // closed when the rest is known
	at     string        // where the environment is
	needs  wire.Platform
	bundle *ship.Bundle // nil if there is none
}

// New returns a Maker that waits for a number of hosts, keeps environments in a directory, runs uv with the variables env, and tells
// the user how it goes.
func New(source *Source, dir string, hosts int, env []string, note func(format string, args ...any)) *Maker {
	return &Maker{source: source, dir: dir, hosts: hosts, env: env, note: note, all: make(chan struct{}), made: make(chan struct{})}
}

// Run makes the environment. An error ends the job.
func (m *Maker) Run(ctx context.Context) (err error) {
	select {
	case <-m.all:
	case <-ctx.Done():
		return nil
	}
	defer close(m.made)
	if m.needs, err = choose(m.asked); err == nil {
		m.bundle, err = m.make(ctx)
	}
	return err
}

// Made returns a Maker of an environment that is here, for a Python. tree is nil if it is not here after all.
func Made(tree *wire.Tree, needs wire.Platform) *Maker {
	m := New(nil, "", 0, nil, nil)
	m.needs = needs
	if tree != nil {
		m.bundle = ship.New(tree)
	}
	close(m.made)
	return m
}

// Known returns the environment as soon as it is known, nil before and if there is none.
func (m *Maker) Known() talk.Files {
	select {
	case <-m.made:
		if m.bundle != nil {
			return m.bundle
		}
	default:
	}
	return nil
}

// Dir returns the directory of the environment that Run has made, "" if there is none.
func (m *Maker) Dir() string { return m.at }

// Of returns the environment for the Python of a host when it is made, and calls busy now and then while it is being made.
func (m *Maker) Of(ctx context.Context, host string, ask *wire.AskPython, busy func()) (talk.Files, error) {
	m.ask(asked{host, ask})
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for all, ticks := m.all, (<-chan time.Time)(nil); ; {
		select {
		case <-all:
			all, ticks = nil, tick.C
		case <-ticks:
			busy()
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-m.made:
			if m.bundle == nil && m.source == nil {
				return nil, wrong("start the job again to have it on more hosts", "the launcher has taken the job over on a host without its environment of Python")
			}
			if m.bundle == nil {
				return nil, errors.New("there is no environment of Python") // the job ends with the reason
			}
			if err := differ(asked{"the job", &wire.AskPython{Platform: m.needs, Path: "its environment"}}, asked{host, ask}); err != nil {
				return nil, err
			}
			if tier(ask.Platform.Libc) < tier(m.needs.Libc) {
				hint := "have the job begin with this host"
				if m.source == nil { // it was made for the host of the launcher
					hint = "have --cluster name a host with the oldest glibc"
				}
				return nil, wrong(hint, "%s has glibc %s, and the environment was made for %s", host, ask.Platform.Libc, m.needs.Libc)
			}
			return m.bundle, nil
		}
	}
}

// ask notes what a host has.
func (m *Maker) ask(a asked) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.asked) == m.hosts {
		return
	}
	m.asked = append(slices.DeleteFunc(m.asked, func(other asked) bool { return other.host == a.host }), a)
	if len(m.asked) == m.hosts {
		close(m.all)
	}
}

// make returns the environment, from the cache if it is there.
func (m *Maker) make(ctx context.Context) (*ship.Bundle, error) {
	platform, err := target(m.needs)
	if err != nil {
		return nil, err
	}
	parts := []string{m.source.text, fmt.Sprint(m.source.kind, wire.Proto), platform, m.needs.Version} // Proto as it has the form of the list
	env, flags, err := environment(m.env)
	if err != nil {
		return nil, err
	}
	parts = append(parts, flags...)
	for _, kv := range env {
		if strings.HasPrefix(kv, "UV_") { // another index may have other packages
			parts = append(parts, kv)
		}
		if places, is := strings.CutPrefix(kv, "UV_FIND_LINKS="); is {
			var wheels strings.Builder
			for place := range strings.SplitSeq(places, ",") {
				listWheels(&wheels, place)
			}
			parts = append(parts, wheels.String())
		}
	}
	at := filepath.Join(m.dir, hashOf(parts...))
	m.at = at
	tree := saved(at)
	if tree == nil {
		began := time.Now()
		defer talk.Tell(func() {
			m.note("gorun: --python %s: makes the environment for Python %s, since %.0f s", m.source.Word, name(m.needs), time.Since(began).Seconds())
		})()
		if err := m.atomically(at, func() bool { tree = saved(at); return tree != nil }, func(dir string) error { return m.fill(ctx, dir, env, append(flags, "--python-platform", platform)) }); err != nil {
			return nil, err
		}
	}
	return ship.New(tree), used(at)
}

// fill makes the environment in a directory: env, which hosts get, and tree, the list of its files.
func (m *Maker) fill(ctx context.Context, dir string, env, flags []string) error {
	uv, err := m.uv(ctx)
	if err != nil {
		return err
	}
	root := filepath.Join(dir, "env")
	suiting := append(flags, "--python-version", m.needs.Version, "--only-binary", ":all:")
	do := func(words ...string) error {
		err := run(ctx, "", env, uv, words...)
		if err != nil && ctx.Err() == nil {
			err = &Error{fmt.Errorf("for Python %s: %w", name(m.needs), err), hintFor(err.Error())}
		}
		return err
	}
	lock, hashes, err := m.lock(dir, suiting, do)
	if err != nil {
		return err
	}
	// Programs of an environment that can be moved find its Python beside them.
	if err := do("venv", "--quiet", "--no-config", "--no-project", "--relocatable", root); err != nil {
		return err
	}
	if err := do(slices.Concat([]string{"pip", "install", "--quiet", "--link-mode", "copy", "--python", root, "-r", lock}, hashes, suiting)...); err != nil {
		return err
	}
	libraries, err := filepath.Glob(filepath.Join(root, "lib", "python3*"))
	if err != nil || len(libraries) != 1 {
		return fmt.Errorf("find packages in %s: %w", root, errors.Join(err, fs.ErrNotExist))
	}
	if to := filepath.Join(root, "lib", "python"+m.needs.Version); to != libraries[0] { // uv may run on another Python
		if err := os.Rename(libraries[0], to); err != nil {
			return err
		}
	}
	if now, err := m.source.read(); err != nil || now != m.source.text {
		return wrong("start the job again", "%s has changed while its environment was made", m.source.Word)
	}
	return save(ctx, dir)
}

// sources are what a lock has of packages that are no wheels of an index.
var sources = regexp.MustCompile(`(?m)^name = "(.*)"\n(?:.+\n)*?(?:directory = |vcs = |archive = .*\.(?:zip|tgz|tar\.\w+)")`)

// lock returns a file with each package's version and hashes, and the flags with which uv reads it.
func (m *Maker) lock(dir string, suiting []string, do func(words ...string) error) (file string, flags []string, err error) {
	s := m.source
	if s.kind == locked {
		return s.file, []string{"--require-hashes"}, nil
	}
	file = filepath.Join(dir, "pylock.toml")
	words := []string{"--quiet", "--no-header", "--no-annotate", "-o", file}
	switch s.kind {
	case project:
		words = append([]string{"export", "--project", s.file, "--frozen", "--no-dev", "--no-emit-workspace", "--format", "pylock.toml"}, words...)
	case active: // which is complete
		from := filepath.Join(dir, "requirements.txt")
		if err := os.WriteFile(from, []byte(s.text), 0o600); err != nil {
			return "", nil, err
		}
		words = slices.Concat([]string{"pip", "compile", "--generate-hashes", "--no-deps", from}, words, suiting)
	default:
		words = slices.Concat([]string{"pip", "compile", "--generate-hashes", s.file}, words, suiting)
	}
	if err := do(words...); err != nil {
		return "", nil, err
	}
	text, err := os.ReadFile(file)
	if found := sources.FindSubmatch(text); found != nil {
		err = wrong(noWheel, "%s is no wheel", found[1])
	}
	return file, nil, err
}

const onlyWheels = "gorun sends wheels only: name another version, or make a wheel (uv build --wheel) and have --find-links name its directory"

// hints say what to do if uv says this; the first one counts.
var hints = []struct{ said, hint string }{
	{"No space left", "make room, or have XDG_CACHE_HOME and UV_CACHE_DIR name directories on another disk"},
	{"Hash mismatch", "the index has another file than was locked: if that is right, lock the packages again"},
	{"no usable wheels", onlyWheels}, {"no wheels with ", onlyWheels},
	{"No interpreter found", "uv needs a Python, of any version, on this machine"},
	{"", "packages come from PyPI, unless UV_DEFAULT_INDEX, UV_INDEX, UV_FIND_LINKS or settings of pip name another index"},
}

func hintFor(text string) string {
	for _, h := range hints {
		if strings.Contains(text, h.said) {
			return h.hint
		}
	}
	return ""
}
