package ssh

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// readWithoutSSH reads what there is to obey on a machine without OpenSSH's client. It refuses what it cannot obey.
func (r *resolver) readWithoutSSH(t target) (values, error) {
	v := values{"stricthostkeychecking": {"accept-new"}}
	paths := []string{filepath.Join(r.cfg.Home, ".ssh/config"), filepath.Join(r.cfg.SystemDir, "ssh_config")}
	switch r.cfg.ConfigFile {
	case "":
		st, err := os.Stat(paths[0])
		if err == nil && (st.Mode().Perm()&0o022 != 0 || !ownedByMe(st) && st.Sys().(*syscall.Stat_t).Uid != 0) {
			return nil, fmt.Errorf("others may write %s", r.cfg.shortPath(paths[0]))
		}
	case NoConfig:
		return v, nil
	default:
		paths = []string{r.cfg.expandHome(r.cfg.ConfigFile)}
	}
	for _, path := range paths {
		text, err := readText(path)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
			continue
		}
		if err != nil {
			return nil, err
		}
		applies, n := true, 0
		for line := range strings.Lines(string(text)) {
			n++
			line = strings.TrimSpace(strings.ReplaceAll(line, "\t", " ")) + " "
			end := strings.IndexAny(line, " =")
			keyword, rest := strings.ToLower(line[:end]), strings.Trim(line[end:], " =\"")
			plain := !strings.ContainsAny(rest, "'\"\\#")
			switch class := classes[keyword]; {
			case keyword == "" || keyword[0] == '#' || class == without || keyword == "hashknownhosts":
			case keyword == "host" && plain:
				applies = matchesList(strings.Fields(rest), t.alias)
			case strings.Contains(" hostname user port identityfile proxyjump ", " "+keyword+" ") && plain:
				if keyword == "hostname" {
					rest = strings.NewReplacer("%%", "%", "%h", t.alias).Replace(rest)
				}
				if applies && (keyword == "identityfile" || v.first(keyword) == "") {
					v[keyword] = append(v[keyword], rest)
				}
			default:
				return nil, fmt.Errorf("%s:%d: %w", r.cfg.shortPath(path), n, needsSystem(keyword))
			}
		}
	}
	return v, nil
}
