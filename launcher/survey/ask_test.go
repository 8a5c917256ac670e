package survey

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"gorun/launcher/failure"
	"gorun/launcher/talk"
)

// answers is a Dialer whose hosts answer with this text, or never.
type answers map[string]struct {
	stdout, stderr string
	dial           error
}

type nothing struct{ io.Writer }

func (nothing) Close() error { return nil }

func (a answers) Dial(_ context.Context, host string) (*talk.Daemon, error) {
	said, ok := a[host]
	if said.dial != nil {
		return nil, said.dial
	}
	r, w := io.Pipe()
	out := io.Reader(r)
	if ok {
		out = strings.NewReader(said.stdout)
	}
	return &talk.Daemon{In: nothing{io.Discard}, Out: out, Close: w.Close, Wait: func() (string, error) { return said.stderr, nil }}, nil
}

func TestAskAll(t *testing.T) {
	good := `{"hosts": [{"name": "other", "hostname": "h", "cpus": 4}], "ring": []}`
	d := answers{
		"a":       {stdout: good},
		"b":       {stdout: good},
		"garbage": {stdout: "hello"},
		"endless": {stdout: strings.Repeat(" ", mostFacts+1)},
		"failing": {stderr: "gorun: error: probe machine: no sys\ngorun: hint: x\n"},
		"broken":  {stderr: "panic: x\nexit status 2\n"},
		"away":    {dial: &failure.HostError{Host: "away", Step: "connect", Err: errors.New("refused"), Code: 255}},
	}
	for _, c := range []struct {
		hosts []string
		want  string
	}{
		{[]string{"a", "b"}, ""},
		{[]string{"a", "garbage"}, "garbage: probe: parse topology: invalid character"},
		{[]string{"endless"}, fmt.Sprintf("endless: probe: it answered with more than %d bytes", mostFacts)},
		{[]string{"failing", "a"}, "failing: probe: probe machine: no sys"},
		{[]string{"broken", "a"}, "broken: probe: panic: x"},
		{[]string{"away", "a"}, "away: connect: refused"},
		{[]string{"away", "a", "failing"}, "2 of 3 hosts failed"},
	} {
		hosts, err := Hosts(t.Context(), d, c.hosts, time.Minute)
		if (err == nil) != (c.want == "") || err != nil && !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%v: error %v, should be %q", c.hosts, err, c.want)
		}
		for i, h := range hosts {
			if h.Name != c.hosts[i] || h.Hostname != "h" || h.CPUs != 4 {
				t.Errorf("%v: host %+v", c.hosts, h)
			}
		}
	}
}

// TestSilentHost: a host that never answers costs no more than the time it is given.
func TestSilentHost(t *testing.T) {
	_, err := Hosts(t.Context(), answers{}, []string{"silent"}, time.Millisecond)
	var failed *failure.HostError
	if !errors.As(err, &failed) || err.Error() != "silent: probe: no answer within 1ms" || failed.ExitCode() != 255 {
		t.Errorf("error %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(failure.ErrStopped)
	if _, err := Hosts(ctx, answers{}, []string{"silent"}, time.Minute); !errors.Is(err, failure.ErrStopped) {
		t.Errorf("error %v after an interruption", err)
	}
}

// TestExamineSameMachine: a machine under two names is found before there is a job.
func TestExamineSameMachine(t *testing.T) {
	same := `{"host": {"identity": "m"}}`
	d := answers{"a": {stdout: same}, "b": {stdout: same}, "c": {stdout: `{"host": {"identity": "n"}}`}}
	found, err := Examine(t.Context(), []string{"a", "b", "c"}, nil, time.Minute, func(...string) talk.Dialer { return d })
	var named []string
	for _, f := range found {
		if f.Check == "machine" {
			named = append(named, fmt.Sprint(f.Status, " ", f.Host, ": ", f.Text))
		}
	}
	if err != nil || !slices.Equal(named, []string{"FAIL b: the same machine as a, under two names"}) {
		t.Errorf("%q, %v", named, err)
	}
}
