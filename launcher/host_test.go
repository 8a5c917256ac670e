package launcher

import (
	"context"
	"testing"
)

// onlyStarts is a Dialer that can take nothing over.
type onlyStarts struct{}

func (onlyStarts) Dial(context.Context, string) (*Daemon, error) { return nil, nil }

// TestOnlyStarts: a daemon whose launcher is gone is not started once more where it cannot be taken over.
func TestOnlyStarts(t *testing.T) {
	h := &host{name: "a", adopted: true, spec: &Spec{Dial: onlyStarts{}}}
	if d, err := h.dial(t.Context()); err == nil || err.Error() != "take over daemon: it can only be started" {
		t.Errorf("%+v, %v", d, err)
	}
}
