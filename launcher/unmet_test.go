package launcher

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"gorun/launcher/elastic"
	"gorun/rendezvous/wire"
)

// TestUnmetHosts: that a host cannot be used is told once for each reason, however often it is tried; and each loss of one that was.
func TestUnmetHosts(t *testing.T) {
	var notes []string
	j, err := newJob(&Spec{Elastic: &ElasticSpec{Policy: elastic.Policy{NP: 1}}, Note: func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }})
	if err != nil {
		t.Fatal(err)
	}
	defer j.change.tick.Stop()
	for _, why := range []string{"no route", "no answer", "no route", "ready", "no route"} {
		h := j.addHost("a")
		if why == "ready" {
			j.handle(event{host: h.id, msg: &wire.Ready{}})
		}
		j.handle(event{host: h.id, err: &HostError{Host: "a", Step: "connect", Err: errors.New(why)}})
	}
	want := "gorun: a cannot be used: a: connect: no route; gorun: a cannot be used: a: connect: no answer; gorun: a is lost: a: connect: ready; gorun: a cannot be used: a: connect: no route"
	if got := strings.Join(notes, "; "); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}
