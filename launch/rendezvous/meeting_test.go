package rendezvous

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ranks returns the Configs of all ranks, each changed by the caller's function.
func ranks(size int, change func(c *Config)) []Config {
	var all []Config
	for r := range size {
		c := rank(r, size)
		change(&c)
		all = append(all, c)
	}
	return all
}

// All processes meet, in whatever order they come, and know where the others are.
func TestAllMeet(t *testing.T) {
	for _, size := range []int{1, 2, 3, 8} {
		for name, delay := range map[string]func(int) time.Duration{
			"at once":     atOnce,
			"rank 0 last": func(i int) time.Duration { return time.Duration(size-i) * 7 * time.Second },
			"rank 0 first": func(i int) time.Duration {
				return time.Duration(i) * 5 * time.Second
			},
		} {
			synctest.Test(t, func(t *testing.T) {
				skew := func(r int) time.Duration { return time.Duration(r) * 1500 * time.Millisecond }
				all := ranks(size, func(c *Config) {
					ahead := skew(c.Own.Rank)
					c.Clock = func() time.Time { return time.Now().Add(ahead) }
				})
				for _, r := range meet(t, newFakeNet(), delay, all...) {
					if r.err != nil {
						t.Fatalf("%s: rank %d of %d: %v", name, r.Own.Rank, size, r.err)
					}
					checkMeeting(t, r, size)
					for i, c := range r.m.Clocks {
						of := r.Own.Rank // a process other than rank 0 knows only its own clock
						if of == 0 {
							of = i
						}
						if want := -skew(of).Seconds(); math.Abs(c.OffsetS-want) > c.ErrorS+1e-6 || c.ErrorS > 1e-3 {
							t.Errorf("%s: rank %d has clock %+v of rank %d; want %v", name, r.Own.Rank, c, of, want)
						}
					}
				}
			})
		}
	}
}

func checkMeeting(t *testing.T, r result, size int) {
	t.Helper()
	local := map[string]int{}
	for i, p := range r.m.Places {
		host := fmt.Sprint("host", 2*i/size)
		if p.Host != host || !slices.Equal(p.Address, []byte{byte(i)}) || p.LocalRank != local[host] {
			t.Errorf("rank %d knows rank %d at %+v", r.Own.Rank, i, p)
		}
		local[host]++
	}
	for i, p := range r.m.Places {
		if p.LocalSize != local[p.Host] {
			t.Errorf("rank %d knows rank %d among %d on its host; there are %d", r.Own.Rank, i, p.LocalSize, local[p.Host])
		}
	}
	want := 1
	if r.Own.Rank == 0 {
		want = size
	}
	if len(r.m.Links) != want || len(r.m.Clocks) != want || len(r.m.Places) != size || len(r.m.Differ) != 0 {
		t.Errorf("rank %d of %d has %d links, %d clocks, %d places, differences %q", r.Own.Rank, size, len(r.m.Links),
			len(r.m.Clocks),
			len(r.m.Places), r.m.Differ)
	}
}

// After the meeting the connections become the links: no bytes of the rendezvous are left in them.
func TestLinksAreCleanBehindTheMeeting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNet()
		var all sync.WaitGroup
		for r := 1; r < 3; r++ {
			all.Go(func() {
				m, err := Join(t.Context(), f.dial, rank(r, 3))
				if err != nil {
					t.Error(err)
					return
				}
				defer m.Close()
				time.Sleep(time.Hour) // checks that no deadline is left
				if _, err := fmt.Fprintf(m.Links[0], "rank %d\n", r); err != nil {
					t.Error(err)
				}
			})
		}
		m, err := Lead(t.Context(), f, rank(0, 3))
		if err != nil {
			t.Fatal(err)
		}
		for r := 1; r < 3; r++ {
			text, err := io.ReadAll(m.Links[r])
			if want := fmt.Sprintf("rank %d\n", r); string(text) != want || err != nil {
				t.Errorf("link %d gives %q (%v)", r, text, err)
			}
		}
		_ = m.Close()
		all.Wait()
	})
}

// If facts contradict each other or ranks are missing, every process reports the same reasons.
func TestEveryRankSaysWhoAndWhy(t *testing.T) {
	fact := func(r int, name, value string) func(*Config) {
		return func(c *Config) {
			for i := range c.Own.Facts {
				if c.Own.Rank == r && c.Own.Facts[i].Name == name {
					c.Own.Facts[i].Value = value
				}
			}
		}
	}
	for _, c := range []struct {
		name   string
		change func(*Config)
		more   func(all []Config) []Config
		retry  bool
		want   []string
		within time.Duration // limit for every process; the fourth process joins a little later
	}{
		{"a plan", fact(2, "plan", "p2"), nil, false,
			[]string{"the plan of rank 2 (process 102 on host host1) is p2, that of rank 0 (process 100 on host host0) is p1"},
			5 * time.Second},
		{"data", fact(1, "data", "d2"), nil, false, []string{"the data of rank 1 (process 101 on host host0) is d2"},
			5 * time.Second},
		{"a build", fact(0, "build", "b2"), nil, false,
			[]string{"the build of rank 1", "the build of rank 2", "the build of rank 3", "is b1, that of rank 0", "is b2"},
			5 * time.Second},
		{"two things", func(c *Config) { fact(1, "data", "d2")(c); fact(3, "plan", "p2")(c) }, nil, false,
			[]string{"the data of rank 1", "the plan of rank 3"}, 5 * time.Second},
		{"clocks", func(c *Config) {
			if c.Own.Rank == 3 {
				c.Clock = func() time.Time { return time.Now().Add(-2 * time.Minute) }
			}
		}, nil, false, []string{"the clock of rank 3 (process 103 on host host1) is 2m0s from that of rank 0",
			"at most 1m0s"}, 5 * time.Second},
		{"a missing rank", func(*Config) {}, func(all []Config) []Config { return append(all[:2:2], all[3]) }, true,
			[]string{"rank 2 of 4 did not come within 1m0s (here: ranks 0-1, 3)"}, 75 * time.Second},
		{"two missing ranks", func(*Config) {}, func(all []Config) []Config { return all[:2] }, true,
			[]string{"ranks 2-3 of 4 did not come within 1m0s (here: ranks 0-1)"}, 75 * time.Second},
		{"a doubled rank", func(*Config) {}, func(all []Config) []Config {
			twin := rank(1, 4)
			twin.Own.PID, twin.Own.Host = 777, "host9"
			return append(all, twin)
		}, false, []string{"rank 1 is there twice: process ", "101 on host host0", "777 on host host9"}, 5 * time.Second},
		{"a doubled rank in place of another", func(*Config) {}, func(all []Config) []Config {
			all[3].Own.Rank = 2
			return all
		}, false, []string{"rank 2 is there twice: process ", "102 on host host1", "103 on host host1"}, 15 * time.Second},
		{"a version", func(c *Config) {
			if c.Own.Rank == 1 {
				c.Own.Version = 99
			}
		}, nil, false, []string{"rank 1 (process 101 on host host0) speaks version 99 of the rendezvous, rank 0"},
			15 * time.Second},
		{"sizes", func(c *Config) {
			if c.Own.Rank == 1 {
				c.Own.Size = 8
			}
		}, nil, false, []string{"rank 1 (process 101 on host host0) says that there are 8 processes, rank 0", "says 4"},
			15 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			all := ranks(4, c.change)
			if c.more != nil {
				all = c.more(all)
			}
			text := ""
			last := func(i int) time.Duration { return map[int]time.Duration{3: settle / 2}[i] }
			for _, r := range meet(t, newFakeNet(), last, all...) {
				var refused *Refused
				if !errors.As(r.err, &refused) {
					t.Fatalf("%s: rank %d: %v", c.name, r.Own.Rank, r.err)
				}
				if refused.Retry != c.retry || r.took > c.within {
					t.Errorf("%s: rank %d: retry %v after %v; want %v within %v", c.name, r.Own.Rank, refused.Retry, r.took, c.retry,
						c.within)
				}
				if text == "" {
					text = r.err.Error()
				}
				if r.err.Error() != text {
					t.Errorf("%s: rank %d says\n%v\nand another\n%s", c.name, r.Own.Rank, r.err, text)
				}
			}
			for _, want := range c.want {
				if !strings.Contains(text, want) {
					t.Errorf("%s: all say\n%s\nwant %q in it", c.name, text, want)
				}
			}
		})
	}
}

// Contradictions found at about the same time are reported together.
func TestReasonsAreGathered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := ranks(5, func(c *Config) {
			if c.Own.Rank == 1 || c.Own.Rank == 3 {
				c.Own.Facts[0].Value = "p2"
			}
		})
		later := func(i int) time.Duration { return time.Duration(i) * 300 * time.Millisecond }
		for _, r := range meet(t, newFakeNet(), later, all...) {
			if r.err == nil || !strings.Contains(r.err.Error(), "the plan of rank 1") ||
				!strings.Contains(r.err.Error(), "the plan of rank 3") {
				t.Errorf("rank %d: %v", r.Own.Rank, r.err)
			}
		}
	})
}

// A process that comes after the meeting has failed is also told why.
func TestWhoComesLateIsToldWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := ranks(3, func(c *Config) {
			if c.Own.Rank == 1 {
				c.Own.Facts[0].Value = "p2"
			}
		})
		late := func(i int) time.Duration { return time.Duration(i/2) * 8 * time.Second }
		for _, r := range meet(t, newFakeNet(), late, all...) {
			if r.err == nil || !strings.Contains(r.err.Error(), "the plan of rank 1") {
				t.Errorf("rank %d: %v", r.Own.Rank, r.err)
			}
		}
	})
}

// Differences in facts that may differ are reported. A fact that a process does not state is not compared.
func TestDifferencesAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := ranks(4, func(c *Config) {
			if c.Own.Rank > 1 {
				c.Own.Facts[3].Value, c.Own.Facts[0].Value = "k2", ""
			}
		})
		for _, r := range meet(t, newFakeNet(), atOnce, all...) {
			if r.err != nil {
				t.Fatal(r.err)
			}
			if want := []string{"kernels differs: k1 on ranks 0-1; k2 on ranks 2-3"}; !slices.Equal(r.m.Differ, want) {
				t.Errorf("rank %d is told %q; want %q", r.Own.Rank, r.m.Differ, want)
			}
		}
	})
}

// Machines with the same name are separate hosts, with names that differ.
func TestMachinesOfOneName(t *testing.T) {
	type at struct {
		name, machine string
		want          string
		node          int
	}
	hosts := []at{{"debian", "m1", "debian", 0}, {"debian", "m2", "debian#2", 1}, {"other", "m2", "other", 2},
		{"debian", "m1", "debian", 0}, {"debian#2", "m3", "debian#2#2", 3}, {"debian", "m4", "debian#3", 4},
		{"debian", "m2", "debian#2", 1}, {"debian", "", "debian#4", 5}}
	synctest.Test(t, func(t *testing.T) {
		all := ranks(len(hosts), func(c *Config) {
			c.Own.Host, c.Own.Machine = hosts[c.Own.Rank].name, hosts[c.Own.Rank].machine
		})
		for _, r := range meet(t, newFakeNet(), atOnce, all...) {
			if r.err != nil {
				t.Fatal(r.err)
			}
			for rank, p := range r.m.Places {
				size := 1
				if hosts[rank].node < 2 {
					size = 2
				}
				if p.Host != hosts[rank].want || p.Node != hosts[rank].node || p.LocalSize != size {
					t.Errorf("rank %d knows rank %d at %+v, want %+v of %d", r.Own.Rank, rank, p, hosts[rank], size)
				}
			}
		}
	})
}
