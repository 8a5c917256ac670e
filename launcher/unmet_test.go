package launcher

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"gorun/launcher/elastic"
	"gorun/rendezvous/wire"
)

// TestUnmetHosts: that a host cannot be used is told once for each reason, however often it is tried; and each loss of one that was, with how
// it would be used again.
func TestUnmetHosts(t *testing.T) {
	var notes []string
	j, err := newJob(&Spec{Elastic: &ElasticSpec{Policy: elastic.Policy{NP: 1}}, Note: func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }})
	if err != nil {
		t.Fatal(err)
	}
	defer j.change.tick.Stop()
	for _, why := range []string{"no route", "no route", "no answer", "ready", "ready"} {
		h := j.addHost("a")
		if why == "ready" {
			j.ready[h.id] = &wire.Ready{}
		}
		j.handle(event{host: h.id, err: &HostError{Host: "a", Step: "connect", Err: errors.New(why)}})
	}
	want := "gorun: a is lost: a: connect: no route; gorun: a is lost: a: connect: no answer; gorun: a is lost: a: connect: ready; gorun: hint: it is not used again while it is listed, unless you say after how many seconds: --blacklist-cooldown-range 10 600; gorun: a is lost: a: connect: ready"
	if got := strings.Join(notes, "; "); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}
