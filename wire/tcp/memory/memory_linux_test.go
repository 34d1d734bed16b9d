package memory

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

// TestMemoryThatCannotBeRead: there is memory that the kernel does not let other processes read. This is noticed before
// the memory is lent, if its beginning or its end is unreadable.
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

// TestMemoryThatIsFreed: if lent memory was freed and the proof is still there, the error does not say that the process
// has ended. Once the proof is wiped, the loan is reported as gone.
func TestMemoryThatIsFreed(t *testing.T) {
	data, err := unix.Mmap(-1, 0, unix.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	proof := &Proof{4, 5, 6}
	heap = append(heap, proof)
	loan, ok := Lends(proof)
	if !ok {
		t.Skip("the kernel reads no memory of other processes here")
	}
	r, err := Open(loan, *proof)
	if err != nil {
		t.Fatal(err)
	}
	got, at := make([]byte, len(data)), At(data)
	if err := errors.Join(r.Read(got, at), unix.Munmap(data)); err != nil {
		t.Fatal(err)
	}
	if err := r.Read(got, at); !errors.Is(err, unix.EFAULT) {
		t.Errorf("of a process that goes on: %v", err)
	}
	clear(proof[:])
	if err := r.Read(got, at); !errors.Is(err, ErrGone) {
		t.Errorf("of a process that has ended: %v", err)
	}
}

// TestWhoIsLetIn: the descendants of a launcher may read this process's memory. Nobody may if the launcher is unknown,
// or is process 1, from which all processes descend.
func TestWhoIsLetIn(t *testing.T) {
	kernel := setTracer
	defer func() { setTracer = kernel }()
	var in []int
	setTracer = func(process int) error { in = append(in, process); return nil }
	for _, launcher := range []int{0, 1, 77} {
		letDescendantsRead(launcher)
	}
	if len(in) != 1 || in[0] != 77 {
		t.Errorf("the descendants of %v are let in", in)
	}
}
