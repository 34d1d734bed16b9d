package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// If any process, rank 0 included, disappears while others are awaited, the meeting ends.
func TestWhoIsLostEndsTheMeeting(t *testing.T) {
	for _, gone := range []int{0, 2} {
		synctest.Test(t, func(t *testing.T) {
			f := newFakeNet()
			ctx, stop := context.WithCancel(t.Context())
			var all sync.WaitGroup
			errs := make([]error, 3)
			for r := range 3 {
				ctx := ctx
				if r != gone {
					ctx = t.Context()
				}
				all.Go(func() {
					if r == 0 {
						_, errs[r] = Lead(ctx, f, rank(r, 4)) // rank 3 never comes
						return
					}
					_, errs[r] = Join(ctx, f.dial, rank(r, 4))
				})
			}
			time.Sleep(20 * time.Second)
			stop()
			began := time.Now()
			all.Wait()
			if took := time.Since(began); took > 12*time.Second {
				t.Errorf("without rank %d it took %v", gone, took)
			}
			for r, err := range errs {
				var refused *Refused
				want := map[int]string{0: "rank 0 was stopped", 2: "rank 2 (process 102 on host host1) was lost before all " +
					"had met"}[gone]
				if r == gone && gone != 0 {
					want = "rank 2 was stopped"
				} else if !errors.As(err, &refused) || !refused.Retry {
					t.Errorf("rank %d may not try again: %v", r, err)
				}
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("without rank %d rank %d says %v; want %q", gone, r, err, want)
				}
			}
		})
	}
}

// A process that no longer hears from rank 0 reports within wordWait that it has lost rank 0, although the connection
// is still open.
func TestASilentLeaderIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		own, other := net.Pipe()
		defer other.Close()
		go func() {
			var h Hello
			_ = hear(other, maxHello, &h)
			_ = exchange(other, word{Kind: ping}, nil, &answer{})
			_ = exchange(other, word{Kind: beat, Reasons: []string{"rank 3 of 4 did not come"}}, nil, &answer{})
		}()
		began := time.Now()
		_, err := Join(t.Context(), func(context.Context) (net.Conn, error) { return own, nil }, rank(1, 4))
		if err == nil || !strings.Contains(err.Error(), "rank 1 (process 101 on host host0) lost rank 0 before all had "+
			"met") ||
			!strings.Contains(err.Error(), "(by then rank 3 of 4 did not come)") || time.Since(began) > wordWait {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}

// When the time is over, the missing processes are named: those that have not come, those that came but do not answer,
// and those that have not taken the table.
func TestWhoWasWaitedForIsNamed(t *testing.T) {
	hello := func(r int) Hello { c := rank(r, 3); return c.Own }
	came := func(ranks ...int) *roll {
		r := newRoll(hello(0), time.Second)
		for _, i := range ranks {
			if _, err := r.add(hello(i)); err != nil {
				t.Fatal(err)
			}
		}
		return r
	}
	silent, both, sharing := came(1, 2), came(1), came(1, 2)
	silent.clock(2, Clock{})
	for i := 1; i < 3; i++ {
		sharing.clock(i, Clock{})
	}
	sharing.took(2)
	for want, r := range map[string]*roll{
		"rank 1 came and said no more within 1m0s (here: ranks 0-2)":                              silent,
		"rank 2 of 3 did not come and rank 1 came and said no more within 1m0s (here: ranks 0-1)": both,
		"rank 1 did not take the table of all within 1m0s (here: ranks 0-2)":                      sharing,
	} {
		if r.late(time.Minute); r.phase != failed || len(r.reasons) != 1 || r.reasons[0] != want || !r.retry {
			t.Errorf("phase %d, %q; want %q", r.phase, r.reasons, want)
		}
	}
}

// If nobody listens in place of rank 0, the other processes report this when their time is over. If rank 0 refuses
// their token, they report the refusal after the first try.
func TestWithoutRank0(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet()
		f.Close()
		_, err := Join(t.Context(), f.dial, rank(2, 4))
		var refused *Refused
		if !errors.As(err, &refused) || !refused.Retry || !strings.Contains(err.Error(), "within 1m0s: nobody listens") {
			t.Error(err)
		}
		tries := 0
		_, err = Join(t.Context(), func(context.Context) (net.Conn, error) {
			tries++
			return nil, fmt.Errorf("wrong token: %w", ErrFinal)
		}, rank(2, 4))
		if !errors.As(err, &refused) || refused.Retry || tries != 1 || !strings.Contains(err.Error(),
			"rank 0 refused rank 2: wrong token") {
			t.Errorf("%d tries: %v", tries, err)
		}
	})
}
