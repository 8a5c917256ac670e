//go:build !linux

package signs

import "gorun/rendezvous/wire"

// Look sees nothing: daemons run on Linux.
type Look struct{}

// Begin starts a look that sees nothing.
func Begin([]int) *Look { return &Look{} }

// End returns nothing.
func (*Look) End() map[int]*wire.Signs { return nil }

// Stolen knows of nothing.
func Stolen() int64 { return 0 }

// Memory knows nothing.
type Memory struct{}

// MemoryOf returns nothing.
func MemoryOf(int) Memory { return Memory{} }

// Short returns false.
func (Memory) Short() bool { return false }
