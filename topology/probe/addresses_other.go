//go:build !linux

package probe

import (
	"context"
	"errors"
)

// WatchAddresses is for Linux.
func WatchAddresses(context.Context, func()) error {
	return errors.New("watch addresses: only on Linux")
}
