package standing

import (
	"bufio"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"gorun/rendezvous/audit"
	"gorun/rendezvous/wire"
)

// What the audit log says of requests. Reading the lists of jobs and hosts, reconnecting, and what daemons exchange to
// carry on a job whose launcher is lost are not in it.

// maxAsked bounds the first line that a user sends to a job's launcher, in bytes.
const maxAsked = 4 << 10

// audited is a connection whose first answer is noted in the audit log.
type audited struct {
	net.Conn
	log   func(audit.Entry)
	entry audit.Entry // without What if nothing is noted
}

// requested returns the entry for a request of a peer that has proven a key; What is "" if it is not noted.
func requested(request wire.Message, from net.Addr, key string) audit.Entry {
	e := audit.Entry{From: from.String(), Key: key}
	switch r := request.(type) {
	case *wire.Reserve:
		if len(r.Held) == 0 { // else the job has its slots already, and registers them with another daemon
			e.What, e.Claims = "reserve", &audit.Claims{User: r.User, Program: r.Program, Ranks: r.Ranks}
		}
	case *wire.Serve:
		e.What, e.Slots, e.Job = "start", r.Slots, r.Session
		e.Claims = &audit.Claims{User: r.User, Program: r.Program, Ranks: r.Ranks}
	case *wire.Resume:
		switch e.Job = r.Session; {
		case r.End:
			e.What = "stop"
		case r.Adopt:
			e.What = "adopt"
		}
	case *wire.Detach:
		e.What, e.Claims = "detach", &audit.Claims{User: userOf(r.Env), Program: r.Program}
	case *wire.Reach:
		e.Job = strconv.Itoa(r.Job)
		if r.Output {
			e.What = "output"
		}
	}
	return e
}

// userOf returns the user's name in an environment.
func userOf(env []string) string {
	for _, name := range []string{"USER=", "LOGNAME="} {
		if i := slices.IndexFunc(env, func(kv string) bool { return strings.HasPrefix(kv, name) }); i >= 0 {
			return strings.TrimPrefix(env[i], name)
		}
	}
	return ""
}

// note notes the first answer that decides a request.
func (a *audited) note(answer wire.Message) {
	e := a.entry
	switch m := answer.(type) {
	case *wire.Granted:
	case *wire.Detached:
		if e.Job = strconv.Itoa(m.Job); m.Code != 0 || m.Signal != 0 {
			e.Result, e.Why = audit.Failed, m.Text
		}
	case *wire.Refused:
		e.Result, e.Why = audit.Refused, m.Text
		if e.What == "" && e.Job == "" {
			e.What = "request"
		}
	default: // it waits in the queue, or asks elsewhere
		return
	}
	if e.What != "" {
		a.log(e)
	}
	a.entry.What = ""
}

// passAsked passes on what a user sends to a job's launcher. It notes users that begin to read the output, or ask for
// native stacks. It leaves a signal to passAnswer, which notes it with the answer.
func (j *journal) passAsked(to io.Writer, in io.Reader, e audit.Entry, signals chan<- audit.Entry) error {
	reader := bufio.NewReaderSize(in, maxAsked)
	line, err := reader.ReadSlice('\n')
	switch e.What, e.Detail = j.launchers.Asked(line); e.What {
	case "":
	case "output":
		host, _, _ := net.SplitHostPort(e.From)
		if first, _ := j.readers.first(e.Job+" "+host, time.Now(), readInterval); first {
			j.note(e)
		}
	case "native":
		j.note(e)
	default:
		signals <- e
	}
	if _, wrong := to.Write(line); wrong != nil || err == io.EOF {
		return wrong
	}
	_, err = io.Copy(to, reader)
	return err
}

// passAnswer passes on what a job's launcher answers.
func (j *journal) passAnswer(to io.Writer, job io.Reader, signals <-chan audit.Entry) error {
	reader := bufio.NewReaderSize(job, maxAsked) // for a signal the answer is short
	line, err := reader.ReadSlice('\n')
	j.noteSignal(signals, line)
	if _, wrong := to.Write(line); wrong != nil || err == io.EOF {
		return wrong
	}
	_, err = io.Copy(to, reader)
	return err
}

// noteSignal notes what became of a signal, if there is one.
func (j *journal) noteSignal(signals <-chan audit.Entry, answer []byte) {
	select {
	case e := <-signals:
		if len(answer) == 0 {
			e.Result, e.Why = audit.Failed, "the job's launcher did not answer"
		} else if why := j.launchers.Refusal(answer); why != "" {
			e.Result, e.Why = audit.Refused, why
		}
		j.note(e)
	default:
	}
}

// noteMembers notes which other hosts have joined the cluster of one and which are not in it any more.
func (j *journal) noteMembers(self string, before, now []wire.MemberState) {
	missing := func(from []wire.MemberState, m wire.MemberState) bool {
		return m.Host != self && !slices.ContainsFunc(from, func(x wire.MemberState) bool { return x.Host == m.Host })
	}
	for _, m := range now {
		if missing(before, m) {
			j.note(audit.Entry{What: "join", Host: m.Host, From: m.Addr, Slots: m.Slots})
		}
	}
	for _, m := range before {
		if missing(now, m) {
			j.note(audit.Entry{What: "leave", Host: m.Host, From: m.Addr})
		}
	}
}
