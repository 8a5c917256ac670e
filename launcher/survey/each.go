package survey

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"gorun/launcher/failure"
	"gorun/launcher/talk"
)

// Each runs a command on every host at once. parse reads the output of the host with a number, on a goroutine of its
// own. The errors are in the order of the hosts, nil for one that answered.
func Each(ctx context.Context, d talk.Dialer, names []string, patience time.Duration, parse func(host int, text []byte) error) ([]error, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("no answer within %v", patience))
	defer cancel()
	errs := make([]error, len(names))
	var asking sync.WaitGroup
	for i, name := range names {
		asking.Go(func() {
			_, _, errs[i] = converse(ctx, d, name, func(text []byte, _ *talk.Daemon) error { return parse(i, text) })
		})
	}
	asking.Wait()
	if cause := context.Cause(ctx); errors.Is(cause, failure.ErrStopped) {
		return nil, cause // Ctrl-C is not the hosts' fault
	}
	return errs, nil
}
