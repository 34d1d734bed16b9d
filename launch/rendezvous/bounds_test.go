package rendezvous

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"
)

// If more strangers connect than are allowed at once, the oldest is dropped. Processes that have said Hello do not
// count.
func TestTheOldestStrangerGoes(t *testing.T) {
	s := strangers{most: 3}
	var own, others []net.Conn
	for range 6 {
		a, b := net.Pipe()
		own, others = append(own, a), append(others, b)
	}
	closed := func(i int) bool {
		return errors.Is(own[i].SetDeadline(time.Time{}), io.ErrClosedPipe)
	}
	for i := range 3 {
		s.add(own[i])
	}
	if !s.remove(own[1]) || s.remove(own[1]) {
		t.Error("a stranger that said Hello was not there, or still is")
	}
	s.add(own[3])
	if closed(0) || closed(3) {
		t.Error("three strangers are too many")
	}
	s.add(own[4])
	if !closed(0) || s.remove(own[0]) || closed(2) || closed(3) || s.refused != 1 {
		t.Errorf("the oldest is still there, or another is gone: %d refused", s.refused)
	}
	s.closeAll()
	s.add(own[5])
	for i := 2; i < 6; i++ {
		if !closed(i) {
			t.Errorf("stranger %d is let in where the meeting is over", i)
		}
	}
	if closed(1) {
		t.Error("who had said Hello is closed with the strangers")
	}
	for _, c := range append(own, others...) {
		_ = c.Close()
	}
}

// Memory is allocated for the bytes that have arrived, not for the announced length.
func TestPromisesTakeNoMemory(t *testing.T) {
	const promised = 1 << 30
	text := append(binary.LittleEndian.AppendUint32(nil, promised), "little"...)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got, err := hearBytes(bytes.NewReader(text), promised)
	runtime.ReadMemStats(&after)
	if err == nil || !strings.Contains(err.Error(), "a word of 1073741824 bytes ends after 6") || got != nil {
		t.Errorf("%q, %v", got, err)
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > 1<<20 {
		t.Errorf("%d bytes were taken for 6", took)
	}
	long := bytes.Repeat([]byte("x"), 5<<20)
	if got, err := hearBytes(bytes.NewReader(asWord(long)), len(long)); err != nil || !bytes.Equal(got, long) {
		t.Errorf("%d bytes came back of %d (%v)", len(got), len(long), err)
	}
}

// A process that comes after all processes have met is told so at once. The others do not wait for that process.
func TestWhoComesBehindTheMeeting(t *testing.T) {
	r := newRoll(rank(0, 2).Own, time.Second)
	if entered, err := r.add(rank(1, 2).Own); !entered || err != nil {
		t.Fatal(entered, err)
	}
	r.clock(1, Clock{})
	r.took(1)
	if entered, err := r.add(rank(1, 2).Own); entered || err == nil || !strings.Contains(err.Error(), "have met already") {
		t.Errorf("entered %v, %v", entered, err)
	}
	if r.phase != going || r.word(1).Kind != goAhead {
		t.Errorf("phase %d", r.phase)
	}
}
