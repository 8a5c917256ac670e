// Package vm holds the end-to-end tests of virtual machines: moves and their announcements, on hosts of a lab and on real
// guests.
//
// On lab hosts a program in testdata/vmtools plays vSphere, and Freeze stands for the move. Tests on guests boot them with
// qemu (contrib/lab/vm); TestVMBinding and TestVMRDMA do so only with the flag -vm.
package vm
