package memory

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// thisHost returns a number for this host and its process namespace; processes with the same value can compare
// process numbers. 0 means unknown.
var thisHost = sync.OnceValue(func() uint64 {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return 0
	}
	numbers, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return 0
	}
	sum := sha256.Sum256(append(boot, numbers...))
	return binary.LittleEndian.Uint64(sum[:]) >> 1 // 63 bits, because it travels as a length, which is signed
})

func thisProcess() uint32 { return uint32(os.Getpid()) }

// letSiblingsRead allows the descendants of this process's parent to read its memory, if Yama otherwise forbids that.
var letSiblingsRead = sync.OnceFunc(func() { letDescendantsRead(os.Getppid()) })

// letDescendantsRead allows the descendants of a launcher to read this process's memory. Process 1 is excluded, since
// all processes descend from it.
func letDescendantsRead(launcher int) {
	if launcher > 1 { // 0: the parent is in another process namespace
		_ = setTracer(launcher)
	}
}

var setTracer = func(process int) error { return unix.Prctl(unix.PR_SET_PTRACER, uintptr(process), 0, 0, 0) }

// Readable says whether the kernel can read bytes of this process for another process. The memory of some devices
// cannot be read.
func Readable(b []byte) bool {
	if len(b) == 0 {
		return false
	}
	var ends [2]byte
	into := []unix.Iovec{{Base: &ends[0]}}
	into[0].SetLen(len(ends))
	at := uintptr(At(b))
	n, err := unix.ProcessVMReadv(os.Getpid(), into, []unix.RemoteIovec{{Base: at, Len: 1},
		{Base: at + uintptr(len(b)) - 1, Len: 1}}, 0)
	return err == nil && n == len(ends)
}

// Read reads bytes at an address of the lending process. After an error the content of `into` is undefined.
func (r *Reader) Read(into []byte, at uint64) error {
	err := r.read(into, at)
	if err != nil && len(into) > 0 && errors.Is(r.read(nil, 0), ErrGone) { // lent memory is freed when its process ends
		return ErrGone
	}
	return err
}

// read reads bytes and, after them, the proof.
func (r *Reader) read(into []byte, at uint64) error {
	here, there := make([]unix.Iovec, 0, 2), make([]unix.RemoteIovec, 0, 2)
	if len(into) > 0 {
		here = append(here, unix.Iovec{Base: &into[0]})
		here[0].SetLen(len(into))
		there = append(there, unix.RemoteIovec{Base: uintptr(at), Len: len(into)})
	}
	here = append(here, unix.Iovec{Base: &r.found[0]})
	here[len(here)-1].SetLen(len(r.proof))
	there = append(there, unix.RemoteIovec{Base: uintptr(r.loan.At), Len: len(r.proof)})
	n, err := unix.ProcessVMReadv(int(r.loan.Process), here, there, 0)
	switch {
	case errors.Is(err, unix.ESRCH), errors.Is(err, unix.EFAULT) && len(into) == 0,
		err == nil && n == len(into)+len(r.proof) && r.found != r.proof:
		return ErrGone
	case err != nil:
		return fmt.Errorf("memory of process %d cannot be read: %w", r.loan.Process, err)
	case n != len(into)+len(r.proof):
		return fmt.Errorf("of %d bytes in process %d's memory %d can be read", len(into)+len(r.proof), r.loan.Process, n)
	}
	return nil
}
