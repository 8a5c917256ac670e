//go:build !linux

package tcp

func (o *Options) set(int) error { return nil }
