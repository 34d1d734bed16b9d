package wire

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// On the bubble's clock a transfer takes latency + bytes / bandwidth to the nanosecond,
// and transfers on one link follow each other while their latencies overlap.
func TestALinkTakesItsTime(t *testing.T) {
	link := func(from, to int) Link { return Link{Latency: 5 * time.Millisecond, BytesPerSecond: 1000} }
	for _, c := range []struct {
		name   string
		links  func(from, to int) Link
		sends  [][3]int // from, to, bytes
		arrive []time.Duration
	}{
		{"one", link, [][3]int{{0, 1, 10}}, []time.Duration{15}},
		{"one after the other", link, [][3]int{{0, 1, 10}, {0, 1, 20}, {0, 1, 0}}, []time.Duration{15, 35, 35}},
		{"each direction and pair apart", link, [][3]int{{0, 1, 10}, {1, 0, 20}, {2, 1, 30}}, []time.Duration{15, 25, 35}},
		{"to itself at once", link, [][3]int{{1, 1, 1000}}, []time.Duration{0}},
		{"one card for all", func(from, to int) Link {
			return Link{Latency: 5 * time.Millisecond, BytesPerSecond: 1000, Shared: []int{1}}
		},
			[][3]int{{0, 1, 10}, {1, 0, 20}, {2, 1, 30}}, []time.Duration{15, 35, 65}},
		{"two cards on one way", func(from, to int) Link {
			return Link{Latency: 5 * time.Millisecond, BytesPerSecond: 1000, Shared: [][]int{{1, 2}, {1}, {2}}[from]}
		}, [][3]int{{0, 1, 10}, {1, 0, 20}, {2, 1, 30}, {0, 1, 10}}, []time.Duration{15, 35, 45, 55}},
		{"latencies differ on a shared link", func(from, to int) Link {
			return Link{Latency: time.Duration(30-10*from) * time.Millisecond, BytesPerSecond: 1000, Shared: []int{1}}
		}, [][3]int{{0, 1, 10}, {2, 1, 5}}, []time.Duration{40, 25}},
		{"no shape at all", func(from, to int) Link { return Link{} }, [][3]int{{0, 1, 1000}}, []time.Duration{0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, err := NewShaped(3, c.links)
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				start := time.Now()
				for i, x := range c.sends {
					if err := s.Endpoint(x[0]).Send(x[1], Tag{Sequence: uint64(i)}, Message{{Data: make([]byte, x[2])}}); err != nil {
						t.Fatal(err)
					}
				}
				took := make([]time.Duration, len(c.sends))
				done := make(chan struct{})
				for i, x := range c.sends {
					go func() {
						if _, err := s.Endpoint(x[1]).Receive(t.Context(), x[0], Tag{Sequence: uint64(i)}); err != nil {
							t.Error(err)
						}
						took[i] = time.Since(start)
						done <- struct{}{}
					}()
				}
				for range c.sends {
					<-done
				}
				for i, want := range c.arrive {
					if took[i] != want*time.Millisecond {
						t.Errorf("transfer %d took %v; want %v", i, took[i], want*time.Millisecond)
					}
				}
			})
		})
	}
}

func TestWhatIsOnTheWayWhenAMeshClosesIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := NewShaped(2, func(from, to int) Link { return Link{Latency: time.Hour} })
		if err != nil {
			t.Fatal(err)
		}
		var o, late owner
		if err := s.Endpoint(0).Send(1, Tag{}, Message{{Owner: &o}}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		s.Close()
		if err := s.Endpoint(0).Send(1, Tag{}, Message{{Owner: &late}}); !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
		if o.released != 1 || late.released != 1 {
			t.Error(o, late)
		}
	})
}

func TestLinksAreChecked(t *testing.T) {
	for _, bad := range []Link{{Latency: -1}, {BytesPerSecond: -1}} {
		if _, err := NewShaped(2, func(from, to int) Link { return bad }); err == nil {
			t.Errorf("%+v was taken", bad)
		}
	}
}
