package ssh

import (
	"fmt"
	"io"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"unicode"
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

// files is what may make two hosts differ in the files that OpenSSH has read. When in doubt, they differ.
type files struct {
	keywords map[string]bool // that are for the host
	blocks   [][]string      // the patterns of each Host line
	names    string          // all that HostName lines say
	orders   []string        // of host key algorithms, which known_hosts does not change
	asks     bool            // StrictHostKeyChecking ask is for the host
	blanks   string          // the keyword of a known_hosts file whose name may have blanks, which the list that OpenSSH prints does not show
	apart    bool            // each host differs from all others
}

// readFiles reads the files that OpenSSH reports, and returns its own complaint.
func readFiles(said string) (read *files, complaint string) {
	read = &files{keywords: map[string]bool{}}
	var paths []string
	applies := map[string]bool{} // lines of Host
	for line := range strings.Lines(said) {
		line = strings.TrimSpace(line)
		debug, ok := strings.CutPrefix(line, "debug1: ")
		if path, ok := strings.CutPrefix(debug, "Reading configuration data "); ok && !slices.Contains(paths, path) {
			paths = append(paths, path)
		}
		if place, _, ok := strings.Cut(debug, ": Applying options for "); ok {
			applies[place] = true
		}
		if complaint == "" && !ok && !strings.HasPrefix(line, "OpenSSH_") {
			complaint = line
		}
	}
	for _, path := range paths {
		read.add(path, applies)
	}
	return read, complaint
}

func (f *files) add(path string, applies map[string]bool) {
	text, err := readText(path)
	if err != nil {
		f.apart, f.asks = true, true
	}
	number, here := 0, true
	for line := range strings.Lines(string(text)) {
		number++
		if strings.HasPrefix(strings.TrimSpace(line), "#") {
			continue
		}
		line = strings.TrimLeftFunc(line, func(r rune) bool { return !unicode.IsLetter(r) })
		end := max(0, strings.IndexFunc(line, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }))
		keyword, rest := strings.ToLower(line[:end]), line[end:]
		value := append(strings.FieldsFunc(rest, func(r rune) bool { return strings.ContainsRune(" =\"'\t\r\n", r) }), "?")[0]
		f.keywords[keyword] = f.keywords[keyword] || here
		switch {
		case keyword == "host":
			here = applies[fmt.Sprintf("%s line %d", path, number)]
			f.apart = f.apart || strings.ContainsAny(rest, "\"'\\=#")
			f.blocks = append(f.blocks, strings.Fields(rest))
		case keyword == "match":
			here = true
			for _, criterion := range strings.Fields(strings.ToLower(rest)) {
				f.apart = f.apart || criterion != "all" && criterion != "final" && criterion != "canonical"
			}
		case keyword == "stricthostkeychecking":
			f.asks = f.asks || here && !slices.Contains([]string{"yes", "no", "off", "accept-new"}, strings.ToLower(value))
		case keyword == "hostkeyalgorithms" && value[0] != '+' && value[0] != '-':
			f.orders = append(f.orders, strings.TrimPrefix(value, "^"))
		case keyword == "hostname":
			f.names += strings.ToLower(rest)
		case strings.HasSuffix(keyword, "knownhostsfile") && here && !plainPaths.MatchString(rest):
			f.blanks = keyword
		}
		f.apart = f.apart || strings.HasPrefix(keyword, "canonical") || strings.Contains(rest, "%") && keyword != "proxycommand" && classes[keyword] != without
	}
}

var (
	plainName  = regexp.MustCompile(`^[a-zA-Z0-9._:-]+$`)
	plainWord  = regexp.MustCompile(`^[a-zA-Z0-9@%+=:,./_-]+$`) // to a shell
	plainPaths = regexp.MustCompile(`^([^"'\\$]|"[^" \t\\$]*"|'[^' \t\\$]*')*$`)
	numeric    = regexp.MustCompile(`^[0-9][0-9a-fA-FxX.]*$|:`)
)

// key returns the same text for hosts that the files do not distinguish, "" before they are known.
func (f *files) key(t target) string {
	if f == nil {
		return ""
	}
	key, lower := fmt.Sprintf(" %s %d ", t.user, t.port), strings.ToLower(t.alias)
	addr, err := netip.ParseAddr(t.alias)
	if odd := numeric.MatchString(t.alias) && (err != nil || addr.String() != t.alias); odd || f.apart ||
		!plainName.MatchString(t.alias) || !plainName.MatchString("x"+t.user) || strings.Contains(f.names, lower) {
		return key + t.alias
	}
	for _, patterns := range f.blocks {
		key += fmt.Sprint(matchesList(patterns, t.alias), matchesList(patterns, lower))
	}
	return "*" + key
}

// matchesList matches a name as OpenSSH does: by one of the patterns, and by none of those with an exclamation mark.
func matchesList(patterns []string, name string) (found bool) {
	for _, pattern := range patterns {
		pattern, not := strings.CutPrefix(pattern, "!")
		if matches(pattern, name) {
			if not {
				return false
			}
			found = true
		}
	}
	return found
}

func matches(pattern, name string) bool {
	p, n, star, from := 0, 0, -1, 0 // the last star, and where in name it ends for now
	for n < len(name) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, from = p, n
			p++
		case p < len(pattern) && (pattern[p] == '?' || pattern[p] == name[n]):
			p++
			n++
		case star >= 0:
			from++
			p, n = star+1, from
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}
