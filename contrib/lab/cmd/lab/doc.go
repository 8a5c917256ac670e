// Command lab makes hosts out of this machine and lets people use them. It works on Linux only.
package main
