// Package migrate decides what a virtual machine says to vSphere when it is about to be moved, and what follows
// from the answers: vSphere 8 tells an application in the guest before it moves the machine, waits a while for its
// acknowledgement, and tells it when it is done. vSphere 7 and machines that are not set up for it tell nothing; then
// the id of the guest's session, which changes with every move, tells afterwards.
//
// It is a pure state machine: it runs no program and has no clock. Package vmtools drives it. It cannot prevent a
// move, only have it wait.
package migrate

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

const (
	// App is the name under which the guest registers.
	App = "gorun"
	// Idle is how often one asks for events; Busy the same while a move is under way.
	Idle = time.Second
	Busy = 250 * time.Millisecond
	// Grace is how long after its timeout a move may take until others no longer stand still for it. The longest stun that
	// vSphere allows by itself is 100 s, but before it much memory may be copied, which nobody can say how long takes.
	Grace = 120 * time.Second
	// Forget is how long after its timeout the end of a move is believed in: that, too, may never be told.
	Forget = 30 * time.Minute

	minRetry = time.Second
	maxRetry = 30 * time.Second
	// offRetry is how long one waits to ask again where notifications are not switched on.
	offRetry = time.Minute
	// maxAcks bounds the acknowledgements that wait to be sent.
	maxAcks = 16
	// maxLeaving is how often vSphere may refuse to end a former registration, until that is not tried any more.
	maxLeaving = 8
)

// Kind says what happened.
type Kind int

// Kinds of events.
const (
	Registered   Kind = iota // notifications will come; Text tells how long vSphere waits
	Refused                  // they will not; Text tells why
	Starts                   // the machine is about to be moved: say Quiet when it may go
	Waits                    // vSphere waits for another while than it said, from now on: Limit
	Lasts                    // the move takes longer than others should stand still for; it goes on
	Acknowledged             // vSphere knows that it may
	Ends                     // the announced move is over, Text tells how
	Stays                    // the announced move failed: the machine is where it was
	Moved                    // the machine was moved without an announcement
	Missed                   // an announcement was read too late, Text tells what came after it
)

// Event is what the host should know.
type Event struct {
	Kind      Kind
	Operation string
	Text      string
	Limit     time.Duration // Starts, Waits: how long vSphere waits
}

// operation is a move that was announced.
type operation struct {
	id       json.Number
	deadline time.Time // when vSphere waits no longer
	started  time.Time
	quiet    bool
	lasts    bool
}

// asked is the kind of a request.
type asked int

const (
	nothing asked = iota
	registration
	event
	ack
	leaving
)

// Dialogue is the guest's side. Its methods are called by one goroutine: Next says what to ask, Answer takes what came.
type Dialogue struct {
	token    string
	former   string // token of a registration that has to be ended
	asked    asked
	due      time.Time // of the next request
	op       *operation
	late     *reply      // an announcement that may be too late: what is behind it tells
	looked   time.Time   // when the last event was asked for
	empty    time.Time   // when that was, the last time that there was none: what comes next is newer
	over     json.Number // the move that ended last
	acks     []json.Number
	unheard  bool // the last acknowledgement may not have reached vSphere: ask for events first, it may have ended the move
	failures int
	refusal  string // that was told
	session  string
	moved    time.Time // when vSphere told of a move: what the session was before is no longer true
}

// Next returns the command for vmtoolsd --cmd that is due now, or "" and how long there is none. Every command must
// be followed by Answer.
func (d *Dialogue) Next(now time.Time) (command string, wait time.Duration, events []Event) {
	switch op := d.op; {
	case op == nil:
	case now.After(op.deadline.Add(Forget)):
		events = append(events, d.end(now, "nothing was heard of its end"))
	case now.After(op.deadline.Add(Grace)) && !op.lasts:
		op.lasts = true
		events = append(events, Event{Kind: Lasts, Operation: op.id.String()})
	}
	if now.Before(d.due) {
		return "", d.due.Sub(now), events
	}
	switch {
	case d.former != "":
		d.asked = leaving
		command = request("unregister", map[string]any{"uniqueToken": d.former})
	case d.token == "":
		d.asked = registration
		command = request("register", map[string]any{"appName": App, "notificationTypes": []string{"sla-miss"}})
	case len(d.acks) > 0 && !d.unheard:
		d.asked = ack
		command = request("ack-event", map[string]any{"operationId": d.acks[0], "uniqueToken": d.token})
	default:
		d.asked, d.looked, d.unheard = event, now, false
		command = request("check-for-event", map[string]any{"uniqueToken": d.token})
	}
	return command, 0, events
}

// Registers is true if the last command was to register: without its answer nobody can end the registration.
func (d *Dialogue) Registers() bool { return d.asked == registration }

// Inherit takes the token of a registration that nobody ended, which is to be ended first, in place of the last command.
func (d *Dialogue) Inherit(token string) { d.former, d.asked = token, nothing }

// Refuse takes the reason why the last command, to register, was not run.
func (d *Dialogue) Refuse(now time.Time, reason string) []Event {
	d.asked = nothing
	return d.failed(now, registration, reason)
}

// Token returns what somebody else would need to end the registration that there may be, "" if there is none.
func (d *Dialogue) Token() string { return cmp.Or(d.token, d.former) }

// Farewell returns the command that ends the dialogue, "" if there is nothing to end. It, too, is to be answered.
func (d *Dialogue) Farewell() string {
	token := d.Token()
	if token == "" {
		return ""
	}
	d.token, d.former, d.asked = "", token, leaving
	return request("unregister", map[string]any{"uniqueToken": token})
}

func request(verb string, body map[string]any) string {
	b, err := json.Marshal(body)
	if err != nil {
		panic("migrate: " + err.Error()) // strings and numbers that were decoded before
	}
	return "vm-operation-notification." + verb + " " + string(b)
}

// Answer takes what vmtoolsd wrote, on standard output or standard error, as answer to the last command.
func (d *Dialogue) Answer(now time.Time, text string) []Event {
	was := d.asked
	d.asked = nothing
	r, err := parse(text)
	var events []Event
	if d.late != nil && was == event && (err != nil || r.EventType == "") { // nothing is behind it
		events = append(events, d.begin(now, *d.late))
	}
	if err != nil {
		if was == ack && d.op != nil && d.op.id == d.acks[0] && now.Before(d.op.deadline) {
			d.unheard, d.due = true, now.Add(Busy)
			return events
		}
		return append(events, d.failed(now, was, err.Error())...)
	}
	if was == leaving && (r.Result || d.failures >= maxLeaving) {
		d.former = ""
	}
	if !r.Result {
		return append(events, d.failed(now, was, r.ErrorMessage)...)
	}
	d.failures, d.due = 0, now
	switch was {
	case registration:
		if r.UniqueToken == "" {
			return d.failed(now, was, "no token in the answer")
		}
		d.token, d.refusal, d.empty = r.UniqueToken, "", now
		return []Event{{Kind: Registered, Text: fmt.Sprintf("vSphere announces moves of this machine and waits up to %d s", r.Timeout)}}
	case ack:
		id := d.acks[0]
		d.acks = d.acks[1:]
		if d.op != nil && d.op.id == id && d.op.quiet {
			return []Event{{Kind: Acknowledged, Operation: id.String()}}
		}
	case event:
		if r.EventType == "" {
			d.due, d.empty = now.Add(d.interval()), d.looked
			return events
		}
		events, news := d.happened(now, r)
		if !news { // it may be said again and again
			d.due = now.Add(d.interval())
		}
		return events // there may be more: ask again at once
	}
	return nil
}

// interval is how long one waits between questions that had no answer.
func (d *Dialogue) interval() time.Duration {
	if d.op != nil && !d.op.lasts {
		return Busy
	}
	return Idle
}

// failed takes a refusal.
func (d *Dialogue) failed(now time.Time, was asked, text string) []Event {
	d.failures = min(d.failures+1, 16)
	d.due = now.Add(min(minRetry<<(d.failures-1), maxRetry))
	text = strings.TrimSpace(text)
	switch {
	case strings.Contains(text, "Could not find application"):
		d.token, d.former = "", "" // the machine was reset, or its tools were: nobody knows us any more
		if d.failures == 1 {
			d.due = now
		}
		return nil
	case was == ack:
		d.acks = d.acks[1:] // it is too late, or nobody wants it
		d.due = now.Add(d.interval())
		return nil
	case was != registration && was != leaving:
		return nil // it may go better next time
	case strings.Contains(text, "not enabled"):
		d.due = now.Add(offRetry)
	}
	if text == d.refusal {
		return nil
	}
	d.refusal = text
	return []Event{{Kind: Refused, Text: text}}
}

// happened takes an event, and returns whether it was not known.
func (d *Dialogue) happened(now time.Time, r reply) (events []Event, news bool) {
	switch r.EventType {
	case "start":
		if d.op != nil && d.op.id == r.Operation || d.late != nil && d.late.Operation == r.Operation {
			return nil, false
		}
		if d.late != nil {
			events = append(events, d.miss(now, "another one begins"))
		}
		if d.op != nil {
			events = append(events, d.end(now, "another one begins"))
		}
		// An event may have waited in the queue for longer than vSphere did, if nobody looked for so long. When it was
		// made is not asked: the clock of a machine may differ from its host's.
		if now.Sub(d.empty) > r.timeout() {
			d.late = &r
			return events, true
		}
		return append(events, d.begin(now, r)), true
	case "timeout-change":
		switch timeout := time.Duration(r.NewTimeout) * time.Second; {
		case d.late != nil && d.late.Operation == r.Operation:
			news = d.late.timeout() != timeout
			d.late.Timeout, d.late.DestTimeout = cmp.Or(r.NewTimeout, d.late.Timeout), 0
			return nil, news
		case d.op != nil && d.op.id == r.Operation && r.NewTimeout > 0:
			deadline := d.op.started.Add(timeout)
			news = !deadline.Equal(d.op.deadline)
			d.op.deadline = deadline
			if !d.op.quiet { // Quiet will acknowledge both
				return []Event{{Kind: Waits, Operation: r.Operation.String(), Limit: max(d.op.deadline.Sub(now), 0),
					Text: fmt.Sprintf("vSphere waits up to %v", timeout)}}, news
			}
		}
		d.acknowledge(r.Operation)
	case "end":
		if d.late != nil && d.late.Operation == r.Operation {
			missed := d.miss(now, "its end was there as well")
			events, _ = d.happened(now, r)
			return append([]Event{missed}, events...), true
		}
		switch {
		case d.op != nil && d.op.id == r.Operation:
			e := d.end(now, status(r.Status))
			if r.Status == "failure" {
				e.Kind = Stays
			}
			return []Event{e}, true
		case r.Operation == d.over || r.Status != "success":
			return nil, false
		}
		d.over = r.Operation
		d.forgetSession(now)
		return []Event{{Kind: Moved, Operation: r.Operation.String(), Text: "vSphere says so"}}, true
	}
	return nil, news
}

// begin takes the announcement of a move.
func (d *Dialogue) begin(now time.Time, r reply) Event {
	timeout := r.timeout()
	d.late = nil
	d.op = &operation{id: r.Operation, started: now, deadline: now.Add(timeout)}
	return Event{Kind: Starts, Operation: r.Operation.String(), Limit: timeout, Text: fmt.Sprintf("vSphere waits up to %v", timeout)}
}

// miss forgets an announcement that was read too late.
func (d *Dialogue) miss(now time.Time, text string) Event {
	id := d.late.Operation
	d.late = nil
	d.forgetSession(now)
	return Event{Kind: Missed, Operation: id.String(), Text: text}
}

// end is the end of the move that was announced.
func (d *Dialogue) end(now time.Time, text string) Event {
	id := d.op.id
	d.over, d.op = id, nil
	d.forgetSession(now)
	kept := d.acks[:0]
	for _, a := range d.acks {
		if a != id {
			kept = append(kept, a)
		}
	}
	d.acks = kept
	return Event{Kind: Ends, Operation: id.String(), Text: text}
}

func status(s string) string {
	if s == "" {
		return "over"
	}
	return s
}

func (d *Dialogue) acknowledge(id json.Number) {
	if len(d.acks) < maxAcks {
		d.acks = append(d.acks, id)
	}
}

// Quiet says that the machine may be moved, after Starts.
func (d *Dialogue) Quiet(now time.Time) {
	if d.op != nil && !d.op.quiet {
		d.op.quiet = true
		d.acknowledge(d.op.id)
		if d.failures == 0 {
			d.due = now
		}
	}
}

// Session takes the id of the guest's session, which is another one after a move, and when it was asked for.
func (d *Dialogue) Session(asked time.Time, id string) []Event {
	id = strings.TrimSpace(id)
	switch {
	case id == "" || id == d.session || asked.Before(d.moved):
		return nil
	case d.session == "":
		d.session = id
		return nil
	}
	ev := Event{Kind: Moved, Text: "the session id changed"}
	if d.op != nil {
		ev = d.end(asked, ev.Text)
	}
	d.session = id
	return []Event{ev}
}

// forgetSession is called when a move is over that vSphere told of: the id is another one now, and would end the next move
// before it has begun.
func (d *Dialogue) forgetSession(now time.Time) { d.session, d.moved = "", now }

// WantsSession is true while the session id may tell what events do not.
func (d *Dialogue) WantsSession() bool { return d.token == "" || d.op != nil || d.session == "" }

// reply is an answer of vSphere.
type reply struct {
	Result       bool        `json:"result"`
	ErrorMessage string      `json:"errorMessage"`
	UniqueToken  string      `json:"uniqueToken"`
	EventType    string      `json:"eventType"`
	Status       string      `json:"opStatus"`
	Operation    json.Number `json:"operationId"` // as it was written: it does not fit a float
	Timeout      int64       `json:"notificationTimeoutInSec"`
	NewTimeout   int64       `json:"newNotificationTimeoutInSec"`
	DestTimeout  int64       `json:"destNotificationTimeoutInSec"`
}

// timeout is how long vSphere waits from the announcement on.
func (r reply) timeout() time.Duration {
	if r.DestTimeout > 0 && r.DestTimeout < r.Timeout {
		return time.Duration(r.DestTimeout) * time.Second
	}
	return time.Duration(r.Timeout) * time.Second
}

// maxSeconds bounds times that vSphere names: a day.
const maxSeconds = 86400

// parse reads an answer. Failures may be plain text.
func parse(text string) (reply, error) {
	var r reply
	i := strings.IndexByte(text, '{')
	if i < 0 {
		return r, fmt.Errorf("vmtoolsd: %.200s", strings.TrimSpace(text))
	}
	if err := json.NewDecoder(strings.NewReader(text[i:])).Decode(&r); err != nil {
		return reply{}, fmt.Errorf("read answer of vmtoolsd: %w", err)
	}
	for _, t := range []*int64{&r.Timeout, &r.NewTimeout, &r.DestTimeout} {
		*t = min(max(*t, 0), maxSeconds)
	}
	return r, nil
}
