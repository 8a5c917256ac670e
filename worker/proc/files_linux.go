package proc

import (
	"bytes"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Files are the files of a process: its mapped program and libraries, and the ones it has open.
type Files struct {
	PID   int
	Paths []string
}

// FilesBelow returns, for each of the given processes, the interesting files of it and its descendants. It omits
// processes that have mapped none, and those of other users.
func FilesBelow(pids []int, interest func(path string) bool) (map[int][]Files, error) {
	table, err := ReadTable()
	if err != nil {
		return nil, err
	}
	children, found := byParent(table), map[int][]Files{}
	for _, pid := range pids {
		for _, p := range append([]Process{{PID: pid}}, below(children, pid)...) {
			text, err := os.ReadFile("/proc/" + strconv.Itoa(p.PID) + "/maps")
			if err != nil {
				continue // it has ended
			}
			if paths := parseMaps(text, interest); len(paths) > 0 {
				found[pid] = append(found[pid], Files{p.PID, append(paths, opened(p.PID, interest)...)})
			}
		}
	}
	return found, nil
}

// parseMaps reads /proc/PID/maps, where lines end with the file, if there is one, and segments of a file follow each
// other.
func parseMaps(text []byte, interest func(path string) bool) (paths []string) {
	var last []byte
	for line := range bytes.Lines(text) {
		at := bytes.IndexByte(line, '/')
		if at < 0 {
			continue
		}
		file := bytes.TrimSuffix(line[at:], []byte("\n"))
		if bytes.Equal(file, last) {
			continue
		}
		last = file
		if path := string(file); interest(path) && !slices.Contains(paths, path) {
			paths = append(paths, path)
		}
	}
	return paths
}

// opened returns the files of interest that a process has open.
func opened(pid int, interest func(path string) bool) (paths []string) {
	dir := "/proc/" + strconv.Itoa(pid) + "/fd"
	entries, _ := os.ReadDir(dir) // it may have ended
	for _, e := range entries {
		if path, err := os.Readlink(dir + "/" + e.Name()); err == nil && interest(path) {
			paths = append(paths, path)
		}
	}
	return paths
}

// Environment returns the variables with which a process was started, nil if they cannot be read.
func Environment(pid int) []string {
	text := ReadOf(pid, "environ")
	if text == "" {
		return nil
	}
	return strings.Split(text, "\x00")
}

// ReadOf returns a file of a process in /proc, "" if the process has ended or access is denied.
func ReadOf(pid int, name string) string {
	const most = 4 << 20
	f, err := os.Open("/proc/" + strconv.Itoa(pid) + "/" + name)
	if err != nil {
		return ""
	}
	defer f.Close()
	b, _ := io.ReadAll(io.LimitReader(f, most))
	return string(b)
}

// Field returns the value of a line "name: value", "" if there is none.
func Field(text, name string) string {
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
