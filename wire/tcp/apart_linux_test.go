package tcp

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/millrace-ml/millrace/wire"
)

// apart makes the kernel forbid this process and its parent to read each other's memory. As root the process gives up
// its rights, so that it cannot read the parent. Otherwise it makes itself unreadable.
func apart() error {
	if os.Geteuid() == 0 {
		return syscall.Setuid(65534)
	}
	return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
}

// reads says what the kernel still allows after a call of `apart`: whether the child can read this process, and whether
// this process can read the child.
func reads(t *testing.T) (out, in bool) {
	t.Helper()
	if os.Geteuid() == 0 {
		const trace = 1 << 19 // CAP_SYS_PTRACE
		text, err := os.ReadFile("/proc/self/status")
		if err != nil {
			t.Fatal(err)
		}
		_, behind, _ := strings.Cut(string(text), "CapEff:")
		may, err := strconv.ParseUint(strings.Fields(behind)[0], 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		return false, may&trace != 0
	}
	return yama() < 2, false
}

// yama returns the restriction on reading other processes' memory. 1 allows only ancestors, and processes that were
// given permission; 2 allows only root, 3 nobody.
func yama() int {
	text, _ := os.ReadFile("/proc/sys/kernel/yama/ptrace_scope") // missing without the module
	scope, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	return scope
}

// room returns memory that goes back to the kernel when it is freed, as an engine's memory does.
func room(n int) []byte {
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		panic(err)
	}
	return b
}

// sizeOf returns the length of frame n in give. Long frames, which are lent and read in pieces, alternate with short
// ones, which are not lent.
func sizeOf(n int) int {
	if n%2 == 1 {
		return 1000
	}
	return 3*copyBytes + n%100
}

// give sends frames, several at a time. Each frame is filled with one byte value, and its memory is unmapped as soon as
// its send has ended.
func give(c wire.Carrier, frames int, behind func(n int) error) error {
	const atOnce = 6
	e := wire.Edge{ID: 9, From: c.Rank(), To: 1 - c.Rank()}
	said := make(chan error, atOnce)
	for n := range frames + atOnce {
		if n >= atOnce {
			if err := <-said; err != nil {
				return err
			}
			if err := behind(n - atOnce); err != nil {
				return err
			}
		}
		if n < frames {
			data := room(sizeOf(n))
			for i := range data {
				data[i] = byte(n % 251)
			}
			c.Send(1, e, uint32(n), []*wire.Buffer{bufferOf(data)}, func(err error) {
				said <- errors.Join(err, unix.Munmap(data))
			})
		}
	}
	return nil
}

// errBytes reports a frame with bytes that were not sent.
var errBytes = errors.New("other bytes have come")

// take receives what give sends. Only a few receives are posted at a time, as for the parts of messages.
func take(c wire.Carrier, frames int, behind func(n int) error) error {
	const atOnce = 2
	e := wire.Edge{ID: 9, From: 1 - c.Rank(), To: c.Rank()}
	said := make(chan error, atOnce)
	var rooms [atOnce][]byte
	post := func(n int) {
		if n < frames {
			rooms[n%atOnce] = make([]byte, sizeOf(n))
			c.Recv(e, uint32(n), bufferOf(rooms[n%atOnce]), func(err error) { said <- err })
		}
	}
	for n := range atOnce {
		post(n)
	}
	for n := range frames {
		if err := <-said; err != nil {
			return err
		}
		if got := rooms[n%atOnce]; bytes.Count(got, []byte{byte(n % 251)}) != len(got) {
			return fmt.Errorf("frame %d: %w", n, errBytes)
		}
		if err := behind(n); err != nil {
			return err
		}
		post(n + atOnce)
	}
	return nil
}

// loanFrames is the number of frames of a run in which memory is refused half-way.
const loanFrames = 60

// loans runs give or take. With k.Apart, the process calls apart after k.Behind frames.
func (k task) loans(all []wire.Carrier, rank int) (string, error) {
	frames, does := math.MaxInt-10, give
	if k.Apart {
		frames = loanFrames
	}
	if k.Does == "take" {
		does = take
	}
	return "all", does(all[rank], frames, func(n int) error {
		if k.Apart && n == k.Behind {
			time.Sleep(50 * time.Millisecond) // until as much as possible is in flight
			return apart()
		}
		return nil
	})
}

// withLoans makes a child run give or take, and this process run the other function. For each frame that has ended here
// it calls `behind`, and says in `lent` whether frames are read from memory at that time. The result `lent` says
// whether any frame was read from memory.
func withLoans(t *testing.T, k task, frames int,
	behind func(p *process, n int, lent bool)) (p *process, lent bool, err error) {
	t.Helper()
	k.Rank = 1
	p = begin(t, k)
	c := task{Rank: 0}.config()
	c.limits.grace = 100 * time.Millisecond
	e, _ := listen(t, c)
	at := []wire.Address{e.Address(), p.at}
	all, err := e.Carriers(1, at, []int{0}, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.in.Encode(at); err != nil {
		t.Fatal(err)
	}
	does, way := take, wire.Edge{From: 1, To: 0}
	if k.Does == "take" {
		does, way = give, wire.Edge{From: 0, To: 1}
	}
	err = does(all[0], frames, func(n int) error {
		now := strings.Contains(all[0].Describe(way), "read from memory")
		lent = lent || now
		behind(p, n, now)
		return nil
	})
	return p, lent, err
}

// TestMemoryThatIsRefusedLater: if the kernel forbids reading in the middle of a run, frames that are lent at that time
// and all later ones travel as bytes.
func TestMemoryThatIsRefusedLater(t *testing.T) {
	if yama() > 1 {
		t.Skip("the kernel reads no memory of other processes here: ptrace_scope", yama())
	}
	k := task{Does: "take", Apart: true, Behind: loanFrames / 2} // in the middle, the child is forbidden to read memory
	if os.Geteuid() != 0 {
		k.Does = "give" // in the middle, reading the child's memory is forbidden
	}
	last := false
	p, lent, err := withLoans(t, k, loanFrames, func(_ *process, _ int, lent bool) { last = lent })
	if err != nil {
		t.Fatal(err)
	}
	if said := p.line(t); said != "all" || !lent || k.Does == "take" && last {
		t.Errorf("the child says %s; memory was read: %v, and in the end: %v", said, lent, last)
	}
}

// TestProcessesThatAreKilledAsTheyLend: if either of two processes is killed while memory is read, the surviving
// process ends too, and accepts no wrong bytes.
func TestProcessesThatAreKilledAsTheyLend(t *testing.T) {
	if os.Geteuid() != 0 && yama() > 1 {
		t.Skip("the kernel reads no memory of other processes here: ptrace_scope", yama())
	}
	turns := 3
	if os.Getenv("MILLRACE_SOAK") != "" {
		turns = 50
	}
	for turn := range turns {
		for _, does := range []string{"give", "take"} {
			last := 20 + rand.IntN(40)
			_, lent, err := withLoans(t, task{Does: does}, math.MaxInt-10, func(p *process, n int, _ bool) {
				if n == last {
					time.AfterFunc(time.Duration(rand.IntN(5000))*time.Microsecond, func() { _ = p.command.Process.Kill() })
				}
			})
			var peer *wire.PeerError
			if !errors.As(err, &peer) || peer.Rank != 1 || !peer.Lost || errors.Is(err, errBytes) || !lent {
				t.Errorf("%d, it was to %s: %v; memory was read: %v", turn, does, err, lent)
			}
		}
	}
}

// TestWhatIsLentIsFreed: if a sender closes and frees memory that it has lent, the receive stays posted and reports no
// failure.
func TestWhatIsLentIsFreed(t *testing.T) {
	all := pairThatLends(t)
	defer closeAll(t, all)
	e, data := wire.Edge{ID: 7, From: 0, To: 1}, room(3*copyBytes)
	sent, came := make(chan error, 1), make(chan error, 1)
	all[0].Send(1, e, 0, []*wire.Buffer{bufferOf(data)}, func(err error) { sent <- errors.Join(err, unix.Munmap(data)) })
	time.Sleep(20 * time.Millisecond) // gives the loan time to arrive
	if err := all[0].Close(); err != nil {
		t.Fatal(err)
	}
	if err := errorOf(t, sent, "the send"); !errors.Is(err, wire.ErrClosed) {
		t.Error(err)
	}
	all[1].Recv(e, 0, bufferOf(make([]byte, len(data))), func(err error) { came <- err })
	select {
	case err := <-came:
		t.Errorf("of one that has left in good order: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
}

// TestMemoryThatIsReadForNobody: if a container's rules forbid all reading of memory, frames travel as bytes, and the
// reason is logged.
func TestMemoryThatIsReadForNobody(t *testing.T) {
	const inside = "MILLRACE_TCP_RULES"
	if os.Getenv(inside) == "" {
		c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestMemoryThatIsReadForNobody$", "-test.v")
		c.Env = append(os.Environ(), inside+"=1")
		text, err := c.CombinedOutput()
		if err != nil {
			t.Errorf("%v: %s", err, text)
		}
		if strings.Contains(string(text), "--- SKIP") {
			t.Skipf("%s", text)
		}
		return
	}
	rules := []unix.SockFilter{ // EPERM for this system call
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: unix.SYS_PROCESS_VM_READV},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(rules)), Filter: &rules[0]}
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		t.Skip(err)
	}
	if _, _, no := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC,
		uintptr(unsafe.Pointer(&program))); no != 0 {
		t.Skip(no)
	}
	a, log := listen(t, Config{Process: 0})
	b, _ := listen(t, Config{Process: 1})
	all := carriersOf(t, 1, a, b)
	defer closeAll(t, all)
	x := busy(t, all[0], all[1])
	defer x.end()
	log.says(t, "memory cannot be read")
	x.goesOn(t)
}
