// Package output shows a job to the user: the ranks' lines on the terminal and in files, the status line of a start,
// notes, and the report of what went wrong.
//
// A Mux accepts the ranks' output in any pieces and passes it on in whole lines. Its one goroutine writes to the
// terminal, so only the ranks wait for a slow terminal, when much is queued; Finish ends it. Per-rank files are written by
// the caller's goroutine.
//
// The package does not know hosts, ranks' exit codes, or when a job is over.
package output

import (
	"fmt"
	"strconv"
	"strings"

	"gorun/rendezvous/wire"
)

// Tag returns the prefix of each line of a rank's stream.
type Tag func(rank int, stream wire.OutputStream) string

// HorovodTag is the style of horovodrun: [0]<stdout>:
func HorovodTag(rank int, stream wire.OutputStream) string {
	return fmt.Sprintf("[%d]<%s>:", rank, stream)
}

// TemplateTag returns a Tag with the placeholders {rank}, {host} and {stream} filled in; {{ stands for {.
func TemplateTag(template string, host func(rank int) string) (Tag, error) {
	known := map[string]func(int, wire.OutputStream) string{
		"rank":   func(rank int, _ wire.OutputStream) string { return strconv.Itoa(rank) },
		"host":   func(rank int, _ wire.OutputStream) string { return host(rank) },
		"stream": func(_ int, stream wire.OutputStream) string { return stream.String() },
	}
	var parts []func(int, wire.OutputStream) string
	literal := func(s string) { parts = append(parts, func(int, wire.OutputStream) string { return s }) }
	for rest := template; rest != ""; {
		text, after, found := strings.Cut(rest, "{")
		literal(text)
		if !found {
			break
		}
		if strings.HasPrefix(after, "{") {
			literal("{")
			rest = after[1:]
			continue
		}
		name, tail, closed := strings.Cut(after, "}")
		part, ok := known[name]
		if !closed || !ok {
			return nil, fmt.Errorf("parse tag %q: {%s is none of {rank}, {host}, {stream}", template, name)
		}
		parts = append(parts, part)
		rest = tail
	}
	return func(rank int, stream wire.OutputStream) string {
		var b strings.Builder
		for _, part := range parts {
			b.WriteString(part(rank, stream))
		}
		return b.String()
	}, nil
}
