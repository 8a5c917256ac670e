//go:build !linux

package doctor

import (
	"context"
	"errors"
)

// Gather fails: hosts are Linux.
func Gather(context.Context, string) (Facts, error) {
	return Facts{}, errors.New("gather facts: hosts are Linux")
}
