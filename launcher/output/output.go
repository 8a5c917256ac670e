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
	if err := wire.CheckTemplate(template, "{rank}", "{host}", "{stream}"); err != nil {
		return nil, fmt.Errorf("parse tag %w", err)
	}
	return func(rank int, stream wire.OutputStream) string {
		return strings.NewReplacer("{{", "{", "{rank}", strconv.Itoa(rank), "{host}", host(rank), "{stream}", stream.String()).Replace(template)
	}, nil
}
