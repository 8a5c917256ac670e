// Package vm makes small virtual machines that look like vSphere guests, for tests of what only a virtual
// machine does: being stopped and moved to another hypervisor while a job runs on it.
//
// They are QEMU guests under software emulation, which needs no KVM: VMware's DMI names, two NUMA nodes with
// a vmxnet3 NIC on each, a real sshd, and the machine's own Python with numpy. The guests share one read-only
// image, made from the Debian packages installed here, and a Debian kernel; both are made once and
// kept in a directory. Networks are two bridges in a namespace of their own, 10.77.0.0/24 and 10.78.0.0/24,
// in which programs of the host side run too.
//
// Move stops the guest, sends its memory to a second QEMU process and resumes it there, which looks like vMotion's
// switch-over from inside and from the network. It stops first because QEMU 7.2's live migration loses memory writes
// under emulation.
//
// A Lab has a goroutine per QEMU process, which waits for its end; Close ends all of them. It needs root,
// /dev/net/tun and qemu-system-x86; Check reports what is missing.
package vm
