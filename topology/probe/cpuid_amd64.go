package probe

import "strings"

// cpuid executes the instruction of that name.
//
//go:noescape
func cpuid(leaf, subleaf uint32) (eax, ebx, ecx, edx uint32)

// hypervisor returns the name that the hypervisor reports, "" on bare metal.
func hypervisor() string {
	const present, leaf = 1 << 31, 0x40000000
	if _, _, ecx, _ := cpuid(1, 0); ecx&present == 0 {
		return ""
	}
	_, ebx, ecx, edx := cpuid(leaf, 0)
	var name []byte
	for _, register := range []uint32{ebx, ecx, edx} {
		name = append(name, byte(register), byte(register>>8), byte(register>>16), byte(register>>24))
	}
	return strings.Trim(string(name), "\x00 ")
}
