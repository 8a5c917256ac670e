package main

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// become makes this process one of a user, as a login does. Other programs look the user up, as Go does not know LDAP.
func become(name string) error {
	entry, err := exec.Command("getent", "passwd", "--", name).Output()
	if err != nil {
		return fmt.Errorf("getent passwd: %w", err)
	}
	ids, err := exec.Command("id", "-G", "--", name).Output()
	if err != nil {
		return fmt.Errorf("id: %w", err)
	}
	f := strings.Split(strings.TrimSpace(string(entry))+":::::::", ":") // name, password, uid, gid, comment, home, shell
	var groups []int                                                    // behind uid and gid
	for _, id := range slices.Concat(f[2:4], strings.Fields(string(ids))) {
		n, err := strconv.Atoi(id)
		if err != nil {
			return fmt.Errorf("read ids: %w", err)
		}
		groups = append(groups, n)
	}
	for variable, value := range map[string]string{"USER": f[0], "LOGNAME": f[0], "HOME": f[5], "SHELL": f[6]} {
		os.Setenv(variable, value)
	}
	return cmp.Or(syscall.Setgroups(groups[2:]), syscall.Setgid(groups[1]), syscall.Setuid(groups[0]))
}

// hide keeps other processes of the user from reading this one's memory: it cannot be traced, and leaves no core.
func hide() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("hide memory: %w", err)
	}
	return nil
}
