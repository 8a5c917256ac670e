// Package vm holds the end-to-end tests of virtual machines: moves and their announcements, on hosts of a lab and on real
// guests.
package vm
