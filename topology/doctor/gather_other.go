//go:build !linux

package doctor

import (
	"context"
	"errors"
)

// Python knows nothing: hosts are Linux.
func Python(context.Context, string) (native, frameworks string) { return "", "" }

// Gather fails: hosts are Linux.
func Gather(context.Context, string) (Facts, error) {
	return Facts{}, errors.New("gather facts: hosts are Linux")
}
