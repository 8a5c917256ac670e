package main

import (
	"context"
	"sync"
)

// watching runs watch beside a job and returns what it delivers. The second result ends it and waits for its end.
func watching[T any](ctx context.Context, watch func(ctx context.Context, deliver func(T))) (<-chan T, func()) {
	ctx, cancel := context.WithCancel(ctx)
	delivered := make(chan T)
	var wg sync.WaitGroup
	wg.Go(func() {
		watch(ctx, func(x T) {
			select {
			case delivered <- x:
			case <-ctx.Done():
			}
		})
	})
	return delivered, func() { cancel(); wg.Wait() }
}
