package memory

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// heap keeps objects on the heap, off any stack.
var heap []any

// childVariable makes this binary lend memory until its standard input ends.
const childVariable = "MILLRACE_MEMORY_CHILD"

// lent is what a child reports: a loan, its proof, and the address and length of bytes. Each byte is its offset modulo
// 251.
type lent struct {
	Loan  Loan
	Proof Proof
	At    uint64
	Bytes int
}

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) == "" {
		os.Exit(m.Run())
	}
	l := &lent{Proof: Proof{7, 8, 9}, Bytes: 3 << 20}
	heap = append(heap, l)
	data := make([]byte, l.Bytes)
	for i := range data {
		data[i] = byte(i % 251)
	}
	l.Loan, _ = Lends(&l.Proof)
	l.At = At(data)
	_ = json.NewEncoder(os.Stdout).Encode(l)
	_, _ = io.Copy(io.Discard, os.Stdin)
	runtime.KeepAlive(data)
}

// borrow starts a child, and skips the test if the kernel does not allow reading it.
func borrow(t *testing.T) (l lent, c *exec.Cmd) {
	t.Helper()
	if proof := (Proof{1}); !canLend(&proof) {
		t.Skip("the kernel reads no memory of other processes here")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c = exec.CommandContext(t.Context(), self)
	c.Env, c.Stderr = append(os.Environ(), childVariable+"=1"), os.Stderr
	_, err = c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &l)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(l.Loan, l.Proof); errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSYS) {
		t.Skip(err)
	}
	return l, c
}

func canLend(p *Proof) bool {
	_, ok := Lends(p)
	return ok
}

// TestAnotherProcess: memory that another process lends is read unchanged, and not at all after its death.
func TestAnotherProcess(t *testing.T) {
	l, c := borrow(t)
	r, err := Open(l.Loan, l.Proof)
	if err != nil {
		t.Fatal(err)
	}
	got := make([]byte, l.Bytes-1000)
	if err := r.Read(got, l.At+1000); err != nil {
		t.Fatal(err)
	}
	for i := range got {
		if got[i] != byte((i+1000)%251) {
			t.Fatalf("byte %d is %d", i, got[i])
		}
	}
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_, _ = c.Process.Wait()
	if err := r.Read(got, l.At); !errors.Is(err, ErrGone) {
		t.Errorf("of a process that is dead: %v", err)
	}
}

// TestFalseLoans: a loan with false data is refused.
func TestFalseLoans(t *testing.T) {
	l, _ := borrow(t)
	for name, change := range map[string]func(*lent){
		"another proof":    func(l *lent) { l.Proof[31]++ },
		"another place":    func(l *lent) { l.Loan.At++ },
		"no place":         func(l *lent) { l.Loan.At = 0 },
		"another process":  func(l *lent) { l.Loan.Process = uint32(os.Getppid()) },
		"no process":       func(l *lent) { l.Loan.Process = 1<<31 - 1 },
		"another host":     func(l *lent) { l.Loan.Host++ },
		"host that is not": func(l *lent) { l.Loan.Host = 0 },
	} {
		bad := l
		change(&bad)
		if _, err := Open(bad.Loan, bad.Proof); err == nil {
			t.Errorf("%s: it is read", name)
		}
	}
	if _, err := Open(l.Loan, l.Proof); err != nil {
		t.Error("the true loan is refused:", err)
	}
}

// TestTheEndOfALoan: bytes are not accepted if the proof is gone afterwards. The error for an address without memory
// names the process.
func TestTheEndOfALoan(t *testing.T) {
	data := bytes.Repeat([]byte{5}, 100)
	proof := &Proof{1, 2, 3}
	heap = append(heap, proof, data)
	loan, ok := Lends(proof)
	if !ok {
		t.Skip("the kernel reads no memory of other processes here")
	}
	r, err := Open(loan, *proof)
	if err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(data))
	if err := r.Read(got, At(data)); err != nil || !bytes.Equal(got, data) {
		t.Fatal(got, err)
	}
	err = r.Read(got, 16)
	if err == nil || errors.Is(err, ErrGone) || !strings.Contains(err.Error(), "memory of process") {
		t.Errorf("where there is no memory: %v", err)
	}
	clear(proof[:])
	if err := r.Read(got, At(data)); !errors.Is(err, ErrGone) {
		t.Errorf("behind the end: %v", err)
	}
}
