package pyenv

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
)

// passed are pip's settings that uv gets, with the variables that it reads and what is between several values there.
var passed = []struct{ pip, uv, between string }{
	{"index-url", "UV_DEFAULT_INDEX", " "}, {"extra-index-url", "UV_INDEX", " "}, {"find-links", "UV_FIND_LINKS", ","},
	{"trusted-host", "UV_INSECURE_HOST", " "}, {"cert", "SSL_CERT_FILE", " "},
}

var (
	ofUV  = regexp.MustCompile(`^UV_(INDEX|DEFAULT_INDEX|INDEX_URL|EXTRA_INDEX_URL|FIND_LINKS)=.`)
	isYes = regexp.MustCompile(`(?i)^(1|t|true|y|yes|on)$`)
)

// environment returns the environment for uv, and flags of its pip commands. Where the user has told pip of an index and uv of none, uv
// gets pip's.
func environment(environ []string) (env, flags []string, err error) {
	env = append(slices.Clone(environ), "NO_COLOR=1", "UV_NO_PROGRESS=1")
	if slices.ContainsFunc(environ, ofUV.MatchString) {
		return env, nil, nil
	}
	getenv := func(name string) (value string) {
		for _, kv := range environ {
			if v, is := strings.CutPrefix(kv, name+"="); is {
				value = v
			}
		}
		return value
	}
	of := settings{}
	for _, file := range pipFiles(getenv) {
		if err := of.read(file); err != nil {
			return nil, nil, fmt.Errorf("read pip's settings: %w", err)
		}
	}
	get := func(name string) string {
		return cmp.Or(getenv("PIP_"+strings.ToUpper(strings.ReplaceAll(name, "-", "_"))), of["install."+name], of["global."+name])
	}
	for _, p := range passed {
		values := strings.Fields(get(p.pip))
		if p.pip == "find-links" { // pip does without a directory that is not there
			for i, place := range values {
				if below, is := strings.CutPrefix(place, "~/"); is {
					values[i] = filepath.Join(getenv("HOME"), below)
				}
			}
			values = slices.DeleteFunc(values, func(place string) bool {
				_, err := os.Stat(place)
				return err != nil && !strings.Contains(place, "://")
			})
		}
		if len(values) > 0 && getenv(p.uv) == "" {
			env = append(env, p.uv+"="+strings.Join(values, p.between))
		}
	}
	if isYes.MatchString(get("no-index")) {
		flags = []string{"--no-index"}
	}
	return env, flags, nil
}

// pipFiles returns where pip looks for its settings. Later files count more.
func pipFiles(getenv func(string) string) (files []string) {
	named, home, prefix := getenv("PIP_CONFIG_FILE"), getenv("HOME"), getenv("VIRTUAL_ENV")
	if named == os.DevNull {
		return nil
	}
	for _, dir := range append(filepath.SplitList(cmp.Or(getenv("XDG_CONFIG_DIRS"), "/etc/xdg")), "/Library/Application Support") {
		files = append(files, filepath.Join(dir, "pip/pip.conf"))
	}
	files = append(files, "/etc/pip.conf")
	if _, err := os.Stat(named); err != nil { // else it is in place of the user's
		files = append(files, filepath.Join(home, ".pip/pip.conf"), filepath.Join(home, "Library/Application Support/pip/pip.conf"),
			filepath.Join(cmp.Or(getenv("XDG_CONFIG_HOME"), filepath.Join(home, ".config")), "pip/pip.conf"))
	}
	if python, err := exec.LookPath("python3"); err == nil && prefix == "" {
		prefix = filepath.Dir(filepath.Dir(python))
	}
	files = append(files, filepath.Join(prefix, "pip.conf"), named)
	return slices.DeleteFunc(files, func(file string) bool { return !filepath.IsAbs(file) && file != named || file == "" })
}

// settings are what files of pip's have, by section and name.
type settings map[string]string

// read adds what a file has, if it is there.
func (s settings) read(file string) error {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil
	}
	section, name := "", ""
	for line := range strings.Lines(string(text)) {
		word := strings.TrimSpace(line)
		at := strings.IndexAny(word, "=:")
		switch {
		case word == "" || word[0] == '#' || word[0] == ';':
		case line[0] == '[' && strings.HasSuffix(word, "]"):
			section, name = word[1:len(word)-1], ""
		case (line[0] == ' ' || line[0] == '\t') && name != "": // more of the last value
			s[name] += " " + word
		case at > 0:
			name = section + "." + strings.ReplaceAll(strings.ToLower(strings.TrimSpace(word[:at])), "_", "-")
			s[name] = strings.TrimSpace(word[at+1:])
		}
	}
	return err
}
