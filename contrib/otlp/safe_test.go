package main

import (
	"strings"
	"sync"
)

// safe is a text that several goroutines may write and read.
type safe struct {
	mu   sync.Mutex
	text strings.Builder
}

func (s *safe) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(b)
}

func (s *safe) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}
