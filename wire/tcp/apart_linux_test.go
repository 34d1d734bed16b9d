package tcp

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// apart has the kernel refuse this process to read its parent, which is root's, or its parent, which is not, to
// read this process.
func apart() error {
	if os.Geteuid() == 0 {
		return syscall.Setuid(65534)
	}
	return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
}
