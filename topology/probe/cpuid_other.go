//go:build !amd64

package probe

func hypervisor() string { return "" }
