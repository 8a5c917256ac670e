// Package migrate decides what a virtual machine sends to vSphere when it is about to be moved, and what follows from
// the answers. vSphere 8 notifies an application in the guest before it moves the machine, waits a while for its
// acknowledgement, and notifies it at the end. vSphere 7, and machines that are not configured for it, send nothing;
// then the id of the guest's session, which changes with every move, reveals a move afterwards.
//
// The package is a pure state machine: it runs no program and has no clock. Package vmtools drives it. It cannot
// prevent a move, only delay it.
package migrate

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	// App is the name under which the guest registers.
	App = "gorun"
	// Idle is the polling interval; Busy is the interval during a move.
	Idle = time.Second
	Busy = 250 * time.Millisecond
	// Grace is how long after its timeout a move may take before other hosts stop waiting for it. The longest stun that
	// vSphere allows by itself is 100 s, but copying the memory before it may take any time.
	Grace = 120 * time.Second
	// Forget is how long after its timeout the end of a move is expected; it may never be reported.
	Forget = 30 * time.Minute

	minRetry = time.Second
	maxRetry = 30 * time.Second
	// offRetry is the interval between attempts where notifications are switched off.
	offRetry = time.Minute
	// maxAcks bounds the acknowledgements that wait to be sent.
	maxAcks = 16
	// maxLeaves is how often vSphere may refuse to end a former registration before that is given up.
	maxLeaves = 8
)

// Kind is the kind of an event.
type Kind int

// Kinds of events.
const (
	Registered   Kind = iota // notifications will come; Text is how long vSphere waits
	Refused                  // they will not; Text is the reason
	Starts                   // the machine is about to be moved: call Quiet when it may go
	Waits                    // vSphere changed how long it waits, from now on: Limit
	Lasts                    // the move takes longer than other hosts should wait; it continues
	Acknowledged             // vSphere knows that the machine may be moved
	Ends                     // the announced move is over, Text is the result
	Stays                    // the announced move failed: the machine is where it was
	Moved                    // the machine was moved without an announcement
	Missed                   // an announcement was read too late, Text is what followed it
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

// Dialogue is the guest's side. One goroutine calls its methods: Next returns the next request, Answer takes the
// answer.
type Dialogue struct {
	token    string
	former   string // token of a registration that has to be ended
	asked    asked
	due      time.Time // of the next request
	op       *operation
	late     *reply      // an announcement that may be too late: the next event decides
	looked   time.Time   // when the last event was asked for
	empty    time.Time   // when the queue was last empty: what comes next is newer
	over     json.Number // the move that ended last
	acks     []json.Number
	unheard  bool // the last acknowledgement may not have reached vSphere: poll for events first, the move may have ended
	failures int
	refusal  string // the reported reason
	session  string
	moved    time.Time // when vSphere reported a move: an older session id is obsolete
}

// Next returns the command for vmtoolsd that is due now, or "" and how long there is none. Every command must be
// followed by Answer.
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

// Registers reports whether the last command was to register: without its answer the registration could not be ended.
func (d *Dialogue) Registers() bool { return d.asked == registration }

// Inherit takes the token of a registration that was not ended. Ending it comes first, in place of the last command.
func (d *Dialogue) Inherit(token string) { d.former, d.asked = token, nothing }

// Refuse takes the reason why the last command, to register, was not run.
func (d *Dialogue) Refuse(now time.Time, reason string) []Event {
	d.asked = nothing
	return d.failed(now, registration, reason)
}

// Token returns what a successor would need to end a registration that may exist, "" if there is none.
func (d *Dialogue) Token() string { return cmp.Or(d.token, d.former) }

// Leave returns the command that ends the dialogue, "" if there is nothing to end. It must be followed by Answer, too.
func (d *Dialogue) Leave() string {
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

// Answer takes vmtoolsd's output, from standard output or standard error, as the answer to the last command.
func (d *Dialogue) Answer(now time.Time, text string) []Event {
	was := d.asked
	d.asked = nothing
	r, err := parse(text)
	var events []Event
	if d.late != nil && was == event && (err != nil || r.EventType == "") { // no event follows it
		events = append(events, d.begin(now, *d.late))
	}
	if err != nil {
		if was == ack && d.op != nil && d.op.id == d.acks[0] && now.Before(d.op.deadline) {
			d.unheard, d.due = true, now.Add(Busy)
			return events
		}
		return append(events, d.failed(now, was, err.Error())...)
	}
	if was == leaving && (r.Result || d.failures >= maxLeaves) {
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
		return []Event{{Kind: Registered, Text: fmt.Sprintf("vSphere announces moves of this machine and waits up to %d s",
			r.Timeout)}}
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
		if !news { // it may be repeated again and again
			d.due = now.Add(d.interval())
		}
		return events // there may be more: poll again at once
	}
	return nil
}

// interval returns the pause between polls without an event.
func (d *Dialogue) interval() time.Duration {
	if d.op != nil && !d.op.lasts {
		return Busy
	}
	return Idle
}

// failed handles a refusal.
func (d *Dialogue) failed(now time.Time, was asked, text string) []Event {
	d.failures = min(d.failures+1, 16)
	d.due = now.Add(min(minRetry<<(d.failures-1), maxRetry))
	text = strings.TrimSpace(text)
	switch {
	case strings.Contains(text, "Could not find application"):
		d.token, d.former = "", "" // the machine or its tools were reset, and the registration is gone
		if d.failures == 1 {
			d.due = now
		}
		return nil
	case was == ack:
		d.acks = d.acks[1:] // too late or unwanted
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

// happened handles an event, and returns whether it is new.
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
		// An event may have waited in the queue for longer than vSphere did, if it was not polled. Its time stamp does
		// not help: the clocks of a machine and its host may differ.
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
			e := d.end(now, cmp.Or(r.Status, "over"))
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
	return Event{Kind: Starts, Operation: r.Operation.String(), Limit: timeout,
		Text: fmt.Sprintf("vSphere waits up to %v", timeout)}
}

// miss drops an announcement that was read too late.
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
	d.acks = slices.DeleteFunc(d.acks, func(a json.Number) bool { return a == id })
	return Event{Kind: Ends, Operation: id.String(), Text: text}
}

func (d *Dialogue) acknowledge(id json.Number) {
	if len(d.acks) < maxAcks {
		d.acks = append(d.acks, id)
	}
}

// Quiet reports that the machine may be moved, after Starts.
func (d *Dialogue) Quiet(now time.Time) {
	if d.op != nil && !d.op.quiet {
		d.op.quiet = true
		d.acknowledge(d.op.id)
		if d.failures == 0 {
			d.due = now
		}
	}
}

// Session takes the id of the guest's session, which changes with a move, and when it was requested.
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

// forgetSession is called at the end of a move that vSphere reported: the id has changed, and would otherwise end the
// next move before it starts.
func (d *Dialogue) forgetSession(now time.Time) { d.session, d.moved = "", now }

// WantsSession reports whether the session id may reveal what events do not.
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

// timeout returns how long vSphere waits from the announcement on.
func (r reply) timeout() time.Duration {
	if r.DestTimeout > 0 && r.DestTimeout < r.Timeout {
		return time.Duration(r.DestTimeout) * time.Second
	}
	return time.Duration(r.Timeout) * time.Second
}

// maxSeconds bounds durations from vSphere: a day.
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
