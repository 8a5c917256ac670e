//go:build !linux

package probe

import (
	"context"
	"errors"
)

// WatchAddresses works on Linux only.
func WatchAddresses(context.Context, func()) error {
	return errors.New("watch addresses: only on Linux")
}
