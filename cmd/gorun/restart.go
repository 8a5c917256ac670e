package main

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"gorun/launcher"
	"gorun/launcher/failure"
)

// runWatching runs a job while something else, which may be nil, runs beside it.
func runWatching(ctx context.Context, spec launcher.Spec, watch func(context.Context) error) error {
	if watch == nil {
		return launcher.Run(ctx, spec)
	}
	watching, cancel := context.WithCancelCause(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := watch(watching); err != nil {
			cancel(err) // and with it the job
		}
	})
	err := launcher.Run(watching, spec)
	cancel(nil)
	wg.Wait()
	return err
}

// restarted returns the programs of restart n, 0 for the first run. As under torchrun, they find the number of restarts
// in their environment.
func restarted(programs []launcher.Program, n, most int) []launcher.Program {
	programs = slices.Clone(programs)
	for i := range programs {
		p := &programs[i]
		p.Env = append(slices.Clip(p.Env), "TORCHELASTIC_RESTART_COUNT="+strconv.Itoa(n), "TORCHELASTIC_MAX_RESTARTS="+strconv.Itoa(most))
	}
	return programs
}

// runRestarting runs a job, and runs all of its ranks again when one has failed, up to --max-restarts times.
// Standard input that the first ranks have not read is lost.
func runRestarting(ctx context.Context, spec launcher.Spec, most int, watch func(context.Context) error, note func(format string, args ...any)) error {
	if most == 0 || spec.Elastic != nil {
		return runWatching(ctx, spec, watch)
	}
	programs, end := spec.Programs, time.Now().Add(spec.Timeout)
	for n := 0; ; n++ {
		spec.Programs = restarted(programs, n, most)
		err := runWatching(ctx, spec, watch)
		failed, ok := errors.AsType[*failure.RankError](err)
		if !ok || failed.Reason != "" || n == most || ctx.Err() != nil {
			return err
		}
		note("gorun: %v: all ranks start again, restart %d of %d", failed, n+1, most)
		spec.Stdin = strings.NewReader("")
		if spec.Timeout > 0 {
			spec.Timeout = max(time.Until(end), time.Millisecond)
		}
	}
}
