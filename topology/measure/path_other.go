//go:build !linux

package measure

import (
	"errors"
	"syscall"
)

// unfragmented fails: hosts run Linux.
func unfragmented(string, string, syscall.RawConn) error {
	return errors.New("probe path: hosts run Linux")
}
