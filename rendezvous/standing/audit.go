package standing

import (
	"bufio"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"

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

// requested returns the entry for a request; What is "" if it is not noted.
func requested(request wire.Message, from net.Addr) audit.Entry {
	e := audit.Entry{From: from.String()}
	switch r := request.(type) {
	case *wire.Reserve:
		if len(r.Held) == 0 { // else the job has its slots already, and tells another daemon of them
			e.What, e.User, e.Program, e.Ranks = "reserve", r.User, r.Program, r.Ranks
		}
	case *wire.Serve:
		e.What, e.User, e.Program, e.Ranks, e.Slots, e.Job = "start", r.User, r.Program, r.Ranks, r.Slots, r.Session
	case *wire.Resume:
		switch e.Job = r.Session; {
		case r.End:
			e.What = "stop"
		case r.Adopt:
			e.What = "adopt"
		}
	case *wire.Detach:
		e.What, e.User, e.Program = "detach", userOf(r.Env), r.Program
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

// noteAsked passes on what a user sends to a job's launcher, and notes it if it changes something.
func (s *server) noteAsked(to io.Writer, in io.Reader, from net.Conn, job int) error {
	reader := bufio.NewReaderSize(in, maxAsked)
	line, err := reader.ReadSlice('\n')
	if what := s.cfg.Launchers.Asked(line); what != "" {
		s.note(audit.Entry{What: "signal", From: from.RemoteAddr().String(), Job: strconv.Itoa(job), Detail: what})
	}
	if _, wrong := to.Write(line); wrong != nil || err == io.EOF {
		return wrong
	}
	_, err = io.Copy(to, reader)
	return err
}

// noteMembers notes which hosts have joined the cluster and which are not in it any more.
func (s *server) noteMembers(before, now []wire.MemberState) {
	missing := func(from []wire.MemberState, m wire.MemberState) bool {
		return m.Host != s.cfg.Name && !slices.ContainsFunc(from, func(x wire.MemberState) bool { return x.Host == m.Host })
	}
	for _, m := range now {
		if missing(before, m) {
			s.note(audit.Entry{What: "join", Host: m.Host, From: m.Addr, Slots: m.Slots})
		}
	}
	for _, m := range before {
		if missing(now, m) {
			s.note(audit.Entry{What: "leave", Host: m.Host, From: m.Addr})
		}
	}
}
