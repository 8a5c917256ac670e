//go:build !(rdma && linux && (amd64 || arm64))

package ibverbs

import (
	"errors"

	"gorun/collective/verbs"
)

// Built reports whether this program can load the library.
const Built = false

// Load fails: the program was built without the tag rdma.
func Load(string) (verbs.Provider, error) {
	return nil, errors.New("this program was built without RDMA")
}
