package survey

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"gorun/launcher/failure"
	"gorun/launcher/talk"
)

// Answer is how a host has answered.
type Answer struct {
	Err         error // why it has not
	asked, came time.Time
	at          netip.Addr // where it was reached, if it is not this machine
	here        bool
	who         talk.Identity
}

// Each runs a command on every host at once. parse reads the output of the host with a number, on a goroutine of its
// own.
func Each(ctx context.Context, d talk.Dialer, names []string, patience time.Duration, parse func(host int, text []byte) error) ([]Answer, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("no answer within %v", patience))
	defer cancel()
	answers := make([]Answer, len(names))
	var asking sync.WaitGroup
	for i, name := range names {
		asking.Go(func() {
			answers[i] = converse(ctx, d, name, func(text []byte) error { return parse(i, text) })
		})
	}
	asking.Wait()
	if cause := context.Cause(ctx); errors.Is(cause, failure.ErrStopped) {
		return nil, cause // Ctrl-C is not the hosts' fault
	}
	return answers, nil
}
