package wire

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func text(s string) Message { return Message{{Name: "text", DType: "U8", Data: []byte(s)}} }

func newLocal(t *testing.T, size int) *Local {
	t.Helper()
	l, err := NewLocal(size)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestMessagesComeInOrderBySenderAndTag(t *testing.T) {
	l := newLocal(t, 3)
	defer l.Close()
	to := l.Endpoint(2)
	for _, s := range []struct {
		from int
		tag  uint64
		text string
	}{{0, 1, "a"}, {0, 2, "b"}, {1, 1, "c"}, {0, 1, "d"}} {
		if err := l.Endpoint(s.from).Send(2, Tag{Channel: s.tag}, text(s.text)); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []struct {
		from int
		tag  uint64
		text string
	}{{1, 1, "c"}, {0, 1, "a"}, {0, 2, "b"}, {0, 1, "d"}} {
		m, err := to.Receive(t.Context(), want.from, Tag{Channel: want.tag})
		if err != nil || string(m[0].Data) != want.text {
			t.Errorf("got %v, %v; want %q", m, err, want.text)
		}
	}
	if _, ok := to.Take(0, Tag{Channel: 1}); ok {
		t.Error("a message was taken twice")
	}
}

func TestReceiveWaitsForItsMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLocal(t, 2)
		defer l.Close()
		got := make(chan string)
		for range 2 {
			go func() {
				m, err := l.Endpoint(1).Receive(t.Context(), 0, Tag{})
				if err != nil {
					t.Error(err)
				}
				got <- string(m[0].Data)
			}()
		}
		synctest.Wait()
		if err := errors.Join(l.Endpoint(0).Send(1, Tag{Channel: 9}, text("other")), l.Endpoint(0).Send(1, Tag{}, text("x")), l.Endpoint(0).Send(1, Tag{}, text("x"))); err != nil {
			t.Fatal(err)
		}
		if a, b := <-got, <-got; a != "x" || b != "x" {
			t.Error(a, b)
		}
	})
}

// What one receiver gives up, another gets, although it was the first that was woken.
func TestALeavingReceiverPassesItsTurnOn(t *testing.T) {
	for range 200 {
		l := newLocal(t, 2)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		results := make(chan error, 2)
		for k := range 2 {
			c := t.Context()
			if k == 0 {
				c = ctx
			}
			wg.Go(func() {
				_, err := l.Endpoint(1).Receive(c, 0, Tag{})
				results <- err
			})
		}
		wg.Go(cancel)
		wg.Go(func() {
			if err := l.Endpoint(0).Send(1, Tag{}, text("one")); err != nil {
				t.Error(err)
			}
		})
		first := <-results
		if first == nil { // the one that may leave got the message: send the other one too
			if err := l.Endpoint(0).Send(1, Tag{}, text("two")); err != nil {
				t.Error(err)
			}
		}
		if second := <-results; first != nil && second != nil {
			t.Fatalf("the message was lost: %v, %v", first, second)
		}
		wg.Wait()
		l.Close()
	}
}

func TestAFailingPeerEndsEveryWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLocal(t, 3)
		defer l.Close()
		failures := make(chan error, 2)
		for k := range 2 {
			go func() {
				_, err := l.Endpoint(k).Receive(t.Context(), 2, Tag{})
				failures <- err
			}()
		}
		synctest.Wait()
		why := errors.New("out of memory")
		l.Endpoint(2).Fail(why)
		l.Endpoint(1).Fail(errors.New("too late to be the first"))
		for range 2 {
			err := <-failures
			var peer *PeerError
			if !errors.As(err, &peer) || peer.Rank != 2 || !errors.Is(err, why) {
				t.Errorf("got %v", err)
			}
		}
		if err := l.Endpoint(0).Send(1, Tag{}, text("x")); !errors.Is(err, why) {
			t.Errorf("a send after the failure: %v", err)
		}
	})
}

func TestAnEndedContextEndsItsWait(t *testing.T) {
	l := newLocal(t, 1)
	defer l.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	cancel(why)
	if _, err := l.Endpoint(0).Receive(ctx, 0, Tag{}); !errors.Is(err, why) {
		t.Error(err)
	}
}

// owner counts releases.
type owner struct{ released int }

func (o *owner) Release() { o.released++ }

func TestWhatNobodyReceivesIsReleased(t *testing.T) {
	l := newLocal(t, 2)
	var kept, dropped, late, lost owner
	own := func(o *owner) Message { return Message{{Owner: o}} }
	send := func(to int, o *owner) error { return l.Endpoint(0).Send(to, Tag{}, own(o)) }
	if err := errors.Join(send(1, &kept), send(1, &dropped)); err != nil {
		t.Fatal(err)
	}
	if _, ok := l.Endpoint(1).Take(0, Tag{}); !ok {
		t.Fatal("the message is not there")
	}
	if err := send(7, &lost); err == nil || !strings.Contains(err.Error(), "0..1") {
		t.Error(err)
	}
	l.Close()
	if err := send(1, &late); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if kept.released != 0 || dropped.released != 1 || late.released != 1 || lost.released != 1 {
		t.Error(kept, dropped, late, lost)
	}
}

func TestNotifyTellsOfWhatIsHereAndWhatComes(t *testing.T) {
	l := newLocal(t, 2)
	defer l.Close()
	var got []uint64
	send := func(tag Tag) {
		if err := l.Endpoint(0).Send(1, tag, nil); err != nil {
			t.Fatal(err)
		}
	}
	send(Tag{Channel: 1})
	send(Tag{Channel: 2, Phase: 3})
	l.Endpoint(1).Notify(func(from int, tag Tag) { got = append(got, tag.Channel) })
	send(Tag{Channel: 4})
	send(Tag{Channel: 5, Phase: 1})
	l.Endpoint(1).Notify(nil)
	send(Tag{Channel: 6})
	if len(got) != 2 || got[0] != 1 || got[1] != 4 {
		t.Error(got)
	}
}

func TestAMeshNeedsARank(t *testing.T) {
	if _, err := NewLocal(0); err == nil {
		t.Error("a mesh of 0 ranks was made")
	}
}
