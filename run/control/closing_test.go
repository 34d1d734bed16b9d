package control

import (
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Close waits until everything that was sent before has arrived, however slowly the other end reads. It goes on waiting
// even if nothing is transferred for a while.
func TestClosingWaitsForWhoTakesMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, y := net.Pipe()
		y = &slow{Conn: y, pause: 500 * time.Millisecond, size: 100}
		held := &slow{Conn: x, pause: usual.beat / 10, size: 1 << 10}
		a, b := over(held, usual), over(y, usual)
		atB := hear(b)
		hear(a)
		const n = 100
		for i := range n {
			if err := errors.Join(a.Send(Message{N: uint64(i + 1), Body: Begun{Minibatch: i}}),
				b.Send(Message{N: uint64(i + 1), Body: Begun{Minibatch: i}})); err != nil {
				t.Fatal(err)
			}
		}
		since := time.Now()
		time.AfterFunc(time.Second, func() { held.stop.Store(true) })
		time.AfterFunc(5*time.Second, func() { held.stop.Store(false) })
		if err := a.Close(); err != nil {
			t.Error(err)
		}
		<-atB.done
		if len(atB.all) != n || !errors.Is(atB.end, ErrClosed) || time.Since(since) < 2*usual.silence {
			t.Errorf("behind %v %d messages of %d were taken, and then %v", time.Since(since), len(atB.all), n, atB.end)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute) // until the goroutines of the type `slow` have ended
	})
}

// closedOnce is a connection whose second Close fails.
type closedOnce struct {
	net.Conn
	times atomic.Int32
}

func (c *closedOnce) Close() error {
	if c.times.Add(1) > 1 {
		return net.ErrClosed
	}
	return c.Conn.Close()
}

// If the other end is lost while Close waits for it, Close returns soon, without an error.
func TestAnEndIsLostAsItIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, lose := range map[string]func(other net.Conn){
			"it dies":           func(other net.Conn) { other.Close() },
			"it is silent":      func(net.Conn) {},
			"it takes no more":  func(other net.Conn) { _, _ = other.Write(endLine) },
			"in a message":      func(other net.Conn) { _, _ = io.WriteString(other, "{"); other.Close() },
			"it says something": func(other net.Conn) { _, _ = io.WriteString(other, "{}\n"); other.Close() },
		} {
			x, y := net.Pipe()
			a := over(&closedOnce{Conn: x}, usual)
			hear(a)
			if err := a.Send(Message{N: 1, Body: Beat{}}); err != nil {
				t.Fatal(err)
			}
			time.AfterFunc(usual.beat, func() { lose(y) })
			since := time.Now()
			if err := a.Close(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if took := time.Since(since); took > 2*usual.silence {
				t.Errorf("%s: it took %v to close", name, took)
			}
			y.Close()
		}
	})
}

// A second Close ends the first Close's wait for the other end.
func TestASecondCloseDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, y := net.Pipe()
		s := &slow{Conn: y, pause: time.Second, size: 1 << 10}
		s.stop.Store(true)
		a, b := over(x, usual), over(s, patient)
		hear(a)
		atB := hear(b)
		if err := a.Send(Message{N: 1, Body: Beat{}}); err != nil {
			t.Fatal(err)
		}
		first := make(chan time.Duration)
		go func() {
			since := time.Now()
			if err := a.Close(); err != nil {
				t.Error(err)
			}
			first <- time.Since(since)
		}()
		time.Sleep(time.Hour)
		if err := a.Close(); err != nil {
			t.Error(err)
		}
		if took := <-first; took != time.Hour {
			t.Errorf("the first took %v", took)
		}
		s.stop.Store(false)
		<-atB.done
		if err := b.Close(); err != nil || len(atB.all) > 0 {
			t.Error(atB.all, err)
		}
		time.Sleep(time.Minute) // until the goroutines of the type `slow` have ended
	})
}

// A Link can be closed even if the other end reads nothing, or is absent.
func TestClosingDoesNotWaitForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, listens := range []bool{false, true} {
			mine, others := net.Pipe()
			link := over(mine, usual)
			if listens {
				hear(link)
			}
			if err := link.Send(Message{N: 1, Body: Beat{}}); err != nil {
				t.Fatal(err)
			}
			since := time.Now()
			if err := link.Close(); err != nil {
				t.Error(err)
			}
			if took := time.Since(since); took > usual.silence+time.Second {
				t.Errorf("it took %v to close", took)
			}
			others.Close()
		}
	})
}
