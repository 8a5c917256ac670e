package output

import (
	"encoding/json"
	"time"
)

// LineEvent is an event of --json: a line that a rank wrote. The tags jsonschema of events describe their fields to
// users.
type LineEvent struct {
	Event  string    `json:"event"` // "output"
	Time   time.Time `json:"time" jsonschema:"when the launcher read the line (UTC, RFC 3339)"`
	Rank   int       `json:"rank"`
	Host   string    `json:"host,omitempty"`
	Stream string    `json:"stream" jsonschema:"stdout or stderr"`
	Text   string    `json:"text" jsonschema:"the line, without its end"`
	Part   bool      `json:"part,omitempty" jsonschema:"the next event of this rank and stream continues the line, which happens after each MiB of it"`
}

// NoteEvent is an event of --json: a line from gorun itself.
type NoteEvent struct {
	Event string `json:"event"` // "note"
	Text  string `json:"text"`
}

// object returns a rank's line, or a part of it, as JSON. Invalid UTF-8 becomes the replacement character.
func (m *Mux) object(s *stream, text []byte, end End) []byte {
	l := LineEvent{Event: "output", Time: m.cfg.Now().UTC(), Rank: s.rank, Stream: s.name.String(), Text: string(text), Part: end == Part}
	if m.cfg.Host != nil {
		l.Host = m.cfg.Host(s.rank)
	}
	b, _ := json.Marshal(l) // strings, numbers and a time cannot fail
	return append(b, '\n')
}

// Event writes e, a struct whose first field names the event, as a JSON object on a line of its own. Without
// Config.JSON it does nothing.
func (m *Mux) Event(e any) {
	if !m.cfg.JSON {
		return
	}
	if b, err := json.Marshal(e); err == nil {
		m.screen.put(m.cfg.Stdout, append(b, '\n'))
	}
}
