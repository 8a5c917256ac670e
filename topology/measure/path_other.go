//go:build !linux

package measure

import (
	"context"
	"errors"
	"net/netip"
)

// Path fails: hosts run Linux.
func Path(context.Context, netip.Addr, int) (int, error) {
	return 0, errors.New("probe path: hosts run Linux")
}
