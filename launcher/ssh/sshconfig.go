package ssh

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/kevinburke/ssh_config"
)

// maxText bounds a file for ssh. A larger one was not written by hand, and a device has no end.
const maxText = 4 << 20

func readText(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxText+1))
	if err == nil && len(text) > maxText {
		err = fmt.Errorf("more than %d MiB", maxText>>20)
	}
	return text, err
}

// maxInclude bounds files that include each other, as OpenSSH does.
const maxInclude = 16

// sshConfig answers for the user's and the machine's ssh_config, in that order: the first value found counts.
type sshConfig struct {
	files []*ssh_config.Config
}

// loadConfig reads the files that cfg names. Only a file the user named on the command line must be readable; in the
// others, whatever cannot be read or parsed is skipped with a warning, as a launch must not fail over an unrelated
// line.
func loadConfig(cfg Config) (*sshConfig, error) {
	c := &sshConfig{}
	switch cfg.ConfigFile {
	case NoConfig:
	case "":
		userDir := filepath.Join(cfg.Home, ".ssh")
		for _, dir := range []string{userDir, cfg.SystemDir} {
			name := "config"
			if dir == cfg.SystemDir {
				name = "ssh_config"
			}
			parsed, err := parseConfig(cfg, filepath.Join(dir, name), dir)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				cfg.Log.Warn("ssh config ignored", "file", filepath.Join(dir, name), "err", err)
				continue
			}
			c.files = append(c.files, parsed)
		}
	default:
		path := cfg.expandHome(cfg.ConfigFile)
		parsed, err := parseConfig(cfg, path, filepath.Join(cfg.Home, ".ssh"))
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", cfg.shortPath(path), err)
		}
		c.files = append(c.files, parsed)
	}
	return c, nil
}

func parseConfig(cfg Config, path, includeDir string) (*ssh_config.Config, error) {
	p := &preprocessor{cfg: cfg, includeDir: includeDir}
	text, err := p.file(path, "Host *", 0)
	if err != nil {
		return nil, err
	}
	return ssh_config.DecodeBytes(text)
}

// first returns the first value of key for host, "" when there is none.
func (c *sshConfig) first(host, key string) string {
	for _, f := range c.files {
		if v, err := f.Get(host, key); err == nil && v != "" {
			return v
		}
	}
	return ""
}

// all returns every value of key for host.
func (c *sshConfig) all(host, key string) []string {
	var values []string
	for _, f := range c.files {
		if v, err := f.GetAll(host, key); err == nil {
			values = append(values, v...)
		}
	}
	return values
}

// preprocessor rewrites ssh_config into what the parser understands: Match lines become Host lines, and includes are
// expanded here, because the parser resolves them against the passwd entry rather than our Home and rejects all files
// when one of them has a line it does not know.
type preprocessor struct {
	cfg        Config
	includeDir string
}

// file returns the text of path with its includes; block is the Host line in force where it is included.
func (p *preprocessor) file(path, block string, depth int) ([]byte, error) {
	if depth > maxInclude {
		return nil, errors.New("includes are nested too deep")
	}
	text, err := readText(path)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	for n, line := range strings.Split(string(text), "\n") {
		line = strings.TrimRight(line, "\r")
		key, rest := directive(line)
		switch key {
		case "host":
			block = line
		case "match":
			line = p.match(rest, fmt.Sprintf("%s:%d", p.cfg.shortPath(path), n+1))
			block = line
		case "include":
			out.Write(p.include(path, rest, block, depth))
			line = block // the included file may have ended in a block of its own
		}
		out.WriteString(line + "\n")
	}
	return out.Bytes(), nil
}

// include returns the text of the files that patterns name. A block other than `Host *` applies only as long as the
// included file has no blocks of its own, as the conjunction of two blocks cannot be expressed.
func (p *preprocessor) include(from, patterns, block string, depth int) []byte {
	var text bytes.Buffer
	for _, pattern := range fields(patterns) {
		pattern = p.cfg.expandHome(pattern)
		if !filepath.IsAbs(pattern) {
			pattern = filepath.Join(p.includeDir, pattern)
		}
		paths, _ := filepath.Glob(pattern)
		for _, path := range paths {
			t, err := p.file(path, block, depth+1)
			if err != nil {
				p.cfg.Log.Warn("ssh config include ignored", "file", path, "from", from, "err", err)
				continue
			}
			if _, patterns := directive(block); patterns != "*" && hasBlocks(t) {
				p.cfg.Log.Warn("ssh config include ignored: it has Host lines and is itself inside one", "file", path, "from", from)
				continue
			}
			text.WriteString(block + "\n")
			text.Write(t)
			text.WriteString("\n")
		}
	}
	return text.Bytes()
}

func hasBlocks(text []byte) bool {
	for line := range strings.Lines(string(text)) {
		if key, _ := directive(line); key == "host" {
			return true
		}
	}
	return false
}

// match turns a Match line into the equivalent Host line, or into one that never matches if there is none. Matching on
// the final pass or on canonical names is ignored: crypto-policy files use it for algorithms only.
func (p *preprocessor) match(criteria, where string) string {
	const never = "Host !*"
	patterns := "*"
	words := fields(criteria)
	for i := 0; i < len(words); i++ {
		key, value, inline := strings.Cut(words[i], "=")
		key = strings.ToLower(key)
		if key == "all" {
			continue
		}
		if key == "final" || key == "canonical" {
			return never
		}
		if !inline {
			if i++; i < len(words) {
				value = words[i]
			}
		}
		switch {
		case (key == "host" || key == "originalhost") && patterns == "*" && value != "":
			patterns = strings.ReplaceAll(value, ",", " ")
		case key == "localuser" && value != "":
			host := ssh_config.Host{}
			for _, name := range strings.Split(value, ",") {
				if pat, err := ssh_config.NewPattern(name); err == nil {
					host.Patterns = append(host.Patterns, pat)
				}
			}
			if !host.Matches(p.cfg.LocalUser) {
				return never
			}
		default:
			p.cfg.Log.Warn("ssh config block ignored: only Match host, localuser and all are understood", "line", where)
			return never
		}
	}
	return "Host " + patterns
}

// directive splits a line into its keyword, in lower case, and the rest.
func directive(line string) (key, rest string) {
	line = strings.TrimSpace(line)
	if line == "" || line[0] == '#' {
		return "", ""
	}
	i := strings.IndexAny(line, " \t=")
	if i < 0 {
		return strings.ToLower(line), ""
	}
	rest = strings.TrimSpace(line[i:])
	rest = strings.TrimSpace(strings.TrimPrefix(rest, "="))
	return strings.ToLower(line[:i]), rest
}

// fields splits at blanks outside double quotes.
func fields(s string) []string {
	var out []string
	var word strings.Builder
	quoted, open := false, false
	flush := func() {
		if open {
			out = append(out, word.String())
		}
		word.Reset()
		open = false
	}
	for _, r := range s {
		switch {
		case r == '"':
			quoted, open = !quoted, true
		case (r == ' ' || r == '\t') && !quoted:
			flush()
		default:
			word.WriteRune(r)
			open = true
		}
	}
	flush()
	return out
}
