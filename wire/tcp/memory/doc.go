// Package memory reads the memory of another process on this host, as its owner announces it.
//
// In: where a process says that some of its bytes lie, and a proof that it keeps in its memory as long as
// they do. Out: the bytes, by one copy, without any of that process's time. Refused: a process without the
// proof at the place that was said, whatever else it has there, and whatever the kernel does not allow.
//
// The proof is why nothing is read by mistake. A process number may be another's by now, and memory may have
// got another use: whoever lends memory wipes the proof first of all, and it is read again behind the bytes,
// so that what was read is good if it is there. It must be such as nobody else can have.
//
// Linux allows it (process_vm_readv) between processes of one user and one process namespace. Where the Yama
// module restricts it to descendants, a process that lends lets its parent's descendants in, too: those that one
// launcher has started. The kernel knows no smaller right for it than that to trace the process, and takes it away
// when that parent ends. Where the parent is process 1, of which all are descendants, nobody is let in. Elsewhere,
// and where the kernel refuses, nothing can be read.
package memory

import (
	"errors"
	"unsafe"
)

// ErrGone is that a process has gone, or lends nothing any more.
var ErrGone = errors.New("its process lends this memory no longer")

// Proof is a mark that a process has in its memory as long as it lends that memory.
type Proof [32]byte

// Loan is memory that a process lends to others: as long as the proof is there.
type Loan struct {
	Host    uint64 // of this host's processes, as they see each other
	Process uint32
	At      uint64 // where the proof lies
}

// Lends says to whom a process lends that has a proof at some place; false where nobody could read it. Proofs, and
// what is lent, lie on no goroutine's stack, which moves.
func Lends(proof *Proof) (l Loan, ok bool) {
	host := thisHost()
	if host == 0 || !Readable(proof[:]) {
		return l, false
	}
	letSiblingsRead()
	return Loan{Host: host, Process: thisProcess(), At: At(proof[:])}, true
}

// At is where bytes lie.
func At(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }

// Reader reads what one process lends.
type Reader struct {
	loan         Loan
	proof, found Proof
}

// Open makes a Reader, or says why this process cannot read the proof, or that it finds another.
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
