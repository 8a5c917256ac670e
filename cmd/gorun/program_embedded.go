//go:build gorund

package main

import _ "embed"

// hostProgram is cmd/gorund with the Python binding, which is what hosts get: it is smaller than gorun, and to bring it
// is most of a first start. make builds both.
//
//go:embed gorund
var hostProgram []byte
