//go:build !linux

package counters

import (
	"errors"
	"time"
)

// Page is the memory of one rank's counters, which only Linux has.
type Page struct{}

// NewPage fails.
func NewPage() (*Page, error) { return nil, errors.New("make counters: ranks run on Linux only") }

// Path returns no path.
func (p *Page) Path() string { return "" }

// Follow does nothing.
func (p *Page) Follow(int) {}

// Read returns no counts.
func (p *Page) Read() Counts { return Counts{} }

// Close does nothing.
func (p *Page) Close() {}

// Stacks is a pipe for the stacks of a process, which only Linux has.
type Stacks struct{}

// NewStacks fails.
func NewStacks() (*Stacks, error) {
	return nil, errors.New("make pipe for stacks: ranks run on Linux only")
}

// Path returns no path.
func (s *Stacks) Path() string { return "" }

// Ask returns nothing.
func (s *Stacks) Ask(int, Counts) string { return "" }

// Close does nothing.
func (s *Stacks) Close() {}

// Writer counts nothing: ranks run on Linux only.
type Writer struct{}

// Open opens nothing.
func Open(string) (Writer, error) { return Writer{}, nil }

// Waits does nothing.
func (Writer) Waits() time.Duration { return 0 }

// Waited does nothing.
func (Writer) Waited(_, _ time.Duration) {}

// Missed does nothing.
func (Writer) Missed(time.Duration) {}

// Moved does nothing.
func (Writer) Moved(time.Duration) {}

// Close does nothing.
func (*Writer) Close() {}
