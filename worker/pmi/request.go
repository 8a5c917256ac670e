package pmi

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// request is one line of a client.
type request struct {
	cmd  string // empty for a line that continues a command of several lines
	args map[string]string
}

var (
	errLine = errors.New("not a request of PMI")
	errLong = fmt.Errorf("a request of PMI with more than %d bytes", maxLine)
)

// parse reads "cmd=name key=value …\n". The value of "value" extends to the end of the line, because it may contain
// anything; elsewhere words without "=" are ignored, as other servers do.
func parse(line []byte) (request, error) {
	if len(line) > maxLine || bytes.IndexByte(line, 0) >= 0 {
		return request{}, errLine
	}
	r := request{args: map[string]string{}}
	rest := strings.TrimRight(string(line), "\r\n")
	for rest != "" {
		word, after, _ := strings.Cut(rest, " ")
		key, value, ok := strings.Cut(word, "=")
		switch {
		case !ok:
		case key == "value" || key == "message":
			r.args[key] = rest[len(key)+1:]
			return r, nil
		case (key == "cmd" || key == "mcmd") && r.cmd == "":
			r.cmd = value
		default:
			r.args[key] = value
		}
		rest = after
	}
	return r, nil
}

// number returns an argument as a number, or otherwise if it is none.
func (r request) number(key string, otherwise int) int {
	if n, err := strconv.Atoi(r.args[key]); err == nil {
		return n
	}
	return otherwise
}
