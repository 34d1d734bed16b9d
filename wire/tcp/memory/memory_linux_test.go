package memory

import (
	"testing"

	"golang.org/x/sys/unix"
)

// Memory that the kernel does not read for others is known before it is lent, wherever it begins or ends.
func TestMemoryThatCannotBeRead(t *testing.T) {
	page := unix.Getpagesize()
	all, err := unix.Mmap(-1, 0, 3*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(all)
	if !Readable(all) {
		t.Skip("the kernel reads no memory of other processes here")
	}
	if err := unix.Mprotect(all[2*page:], unix.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	if Readable(all) || Readable(all[2*page:]) || Readable(nil) {
		t.Error("memory that is protected is said to be readable")
	}
	if !Readable(all[:2*page]) {
		t.Error("what lies in front of it is not")
	}
}
