package failure

import (
	"regexp"
	"strings"
)

// noise matches lines that say nothing about why a program ended: warnings, with the line that Python quotes, and what
// Python writes when it has no standard error any more.
var noise = regexp.MustCompile(`^\s|^$|^lost sys\.stderr|^\[W|^\S+:\d+: \w*Warning: `)

// Cause returns the line of the rank's last ones that says why it failed, "" if none does: the error below a traceback,
// or what Python says of a crash. Without them it is the last line that is no noise, unless a signal ended the rank.
func (e *RankError) Cause() string {
	error, last := "", ""
	traced, ignored := false, false // frames were seen, and their error ended nothing
	for _, line := range e.Tail {
		switch {
		case strings.HasPrefix(line, "Fatal Python error: "):
			return line
		case strings.HasPrefix(line, "Exception ignored "):
			ignored = true
		case strings.HasPrefix(line, `  File "`):
			traced = true
		case noise.MatchString(line), strings.HasPrefix(line, "Traceback "):
		case traced:
			if !ignored {
				error = line
			}
			traced, ignored = false, false
		default:
			last = line
		}
	}
	if error == "" && e.Signal == 0 {
		return last
	}
	return error
}
