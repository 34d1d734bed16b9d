// Package memory reads memory that another process on this host lends.
//
// In: the address of some bytes in a process, and a random mark, the proof. That process keeps the proof in its memory
// as long as those bytes are valid. Out: the bytes, by one copy, without any work of that process. Refused: a process
// that does not have the proof at the announced address, and everything that the kernel does not allow.
//
// The proof prevents wrong reads. A process number may belong to another process by now, and memory may be in use for
// something else. So a lender wipes the proof before it frees or reuses lent memory. The reader reads the proof once
// more after the bytes; if it is still there, the bytes are good. No other process may have the same proof.
//
// Linux allows this (process_vm_readv) between processes of one user and one process namespace. The Yama module may
// restrict it to ancestors of the lender. A lender then also permits it to the descendants of its parent, which are the
// processes that one launcher has started. The smallest right that the kernel has for this is the right to trace the
// process; it ends when that parent ends. If the parent is process 1, the ancestor of all processes, the lender gives
// nobody this right. On other systems, and where the kernel refuses, nothing can be read.
package memory

import (
	"errors"
	"unsafe"
)

// ErrGone says that a process has ended or no longer lends its memory.
var ErrGone = errors.New("its process lends this memory no longer")

// Proof is a random mark that a process keeps in its memory as long as it lends other memory.
type Proof [32]byte

// Loan describes the memory that a process lends. It is valid as long as the proof is there.
type Loan struct {
	Host    uint64 // identifies a host, or a process namespace of it, whose process numbers are comparable
	Process uint32
	At      uint64 // address of the proof
}

// Lends returns the loan for a proof at its address; false if no other process could read it. A proof and lent
// memory must not lie on a goroutine's stack, since stacks move.
func Lends(proof *Proof) (l Loan, ok bool) {
	host := thisHost()
	if host == 0 || !Readable(proof[:]) {
		return l, false
	}
	letSiblingsRead()
	return Loan{Host: host, Process: thisProcess(), At: At(proof[:])}, true
}

// At returns the address of bytes.
func At(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }

// Reader reads what one process lends.
type Reader struct {
	loan         Loan
	proof, found Proof
}

// Open makes a Reader. It returns an error if this process cannot read the proof or finds a different one.
func Open(l Loan, proof Proof) (*Reader, error) {
	r := &Reader{loan: l, proof: proof}
	if l.Host == 0 || l.Host != thisHost() {
		return nil, errors.New("its process has numbers that this one cannot tell from others")
	}
	if err := r.Read(nil, 0); err != nil {
		return nil, err
	}
	return r, nil
}
