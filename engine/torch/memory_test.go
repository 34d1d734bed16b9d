package torch_test

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"unsafe"

	"github.com/millrace-ml/millrace/engine"
)

const mib = 1 << 20

func TestMemoryIsCountedByOwner(t *testing.T) {
	e := load(t)
	onThread(t, e, 7, func(d engine.Device) {
		if m := d.Memory(); m != (engine.Memory{}) {
			t.Errorf("a new worker holds %+v", m)
		}
		a := must(d.Full(engine.Float32, []int64{mib / 4}, 0))
		b := must(d.Full(engine.Uint8, []int64{100}, 0))
		if m := d.Memory(); m.LiveBytes != mib+100 || m.PeakBytes != mib+100 || m.CachedBytes != 0 {
			t.Errorf("a MiB and a hundred bytes are %+v", m)
		}
		view := call(d, "aten::view", a, []int64{2, -1})
		a.Free()
		if live := d.Memory().LiveBytes; live != mib+100 {
			t.Errorf("a view keeps its storage: %d bytes live", live)
		}
		view.Free()
		if m := d.Memory(); m.LiveBytes != 100 || m.PeakBytes != mib+100 || m.CachedBytes != mib {
			t.Errorf("after the free: %+v", m)
		}
		d.ResetPeak()
		if m := d.Memory(); m.PeakBytes != 100 {
			t.Errorf("after the reset: %+v", m)
		}
		// A block of the same size class comes from the cache, even if a few bytes less are wanted.
		c := must(d.Full(engine.Uint8, []int64{mib - 1000}, 0))
		if m := d.Memory(); m.LiveBytes != mib-900 || m.CachedBytes != 0 {
			t.Errorf("after the reuse: %+v", m)
		}
		c.Free()
		b.Free()
	})
}

func TestAdoptMovesTheCharge(t *testing.T) {
	e := load(t)
	gift, taken := make(chan engine.Tensor), make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		onThread(t, e, 2, func(d engine.Device) {
			x := must(d.Full(engine.Float32, []int64{mib / 4}, 7))
			gift <- d.Disown(must(d.Leaf(x, false)))
			<-taken
			if live := d.Memory().LiveBytes; live != 0 {
				t.Errorf("the giver still pays for %d bytes", live)
			}
			x.Free()
		})
	})
	all.Go(func() {
		onThread(t, e, 3, func(d engine.Device) {
			old := <-gift
			x := must(d.Adopt(old))
			if _, err := d.Adopt(old); err == nil {
				t.Error("a tensor was adopted twice")
			}
			old.Free() // an invalid handle: harmless
			if m := d.Memory(); m.LiveBytes != mib || m.PeakBytes != mib {
				t.Errorf("the receiver holds %+v", m)
			}
			if v := values(d, x); v[0] != 7 || len(v) != mib/4 {
				t.Errorf("it received %d values, %v first", len(v), v[0])
			}
			close(taken)
			x.Free()
			if _, err := d.Adopt(nil); err == nil {
				t.Error("nothing was adopted")
			}
			d.Close() // frees the handle that values() got from Contiguous
		})
	})
	all.Wait()
}

// A block that is freed on another thread goes back to the device that made it. So a stage that only receives does not
// accumulate its neighbour's memory.
func TestBlocksFreedElsewhereGoHome(t *testing.T) {
	e := load(t)
	gifts := make(chan engine.Tensor)
	back := make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		onThread(t, e, 2, func(d engine.Device) {
			for range 50 {
				gifts <- must(d.Full(engine.Uint8, []int64{mib}, 0))
				<-back
			}
			close(gifts)
			if m := d.Memory(); m.LiveBytes != 0 || m.CachedBytes != mib {
				t.Errorf("the sender: %+v, want one cached block", m)
			}
		})
	})
	all.Go(func() {
		onThread(t, e, 3, func(d engine.Device) {
			for x := range gifts {
				must(d.Adopt(x)).Free()
				back <- struct{}{}
			}
			if m := d.Memory(); m.LiveBytes != 0 || m.CachedBytes != 0 || m.PeakBytes != mib {
				t.Errorf("the receiver: %+v, want nothing left", m)
			}
		})
	})
	all.Wait()
}

// Blocks of random sizes are aligned to 64 bytes. Each keeps its content until a worker, usually another one, has
// adopted and read it. At the end no byte is counted as live.
func TestAllocatorUnderRandomLoad(t *testing.T) {
	e := load(t)
	var all sync.WaitGroup
	trade := make(chan engine.Tensor, 64)
	var made, emptied sync.WaitGroup // a device closes after its tensors are adopted
	made.Add(4)
	emptied.Add(4)
	for w := range 4 {
		all.Go(func() {
			onThread(t, e, 10+w, func(d engine.Device) {
				r := rand.New(rand.NewPCG(uint64(w), 0))
				take := func(y engine.Tensor) {
					y = must(d.Adopt(y))
					b, want := must(viewOf(d, y)), byte(y.Bytes()%251)
					if i := slices.IndexFunc(b, func(v byte) bool { return v != want }); i >= 0 {
						t.Errorf("byte %d of %d is %d, want %d", i, len(b), b[i], want)
					}
					y.Free()
				}
				for range 2000 {
					n := int64(r.ExpFloat64() * float64(int64(1)<<r.IntN(16)))
					x := must(d.Full(engine.Uint8, []int64{n}, float64(n%251)))
					b := must(viewOf(d, x))
					if n > 0 && uintptr(unsafe.Pointer(&b[0]))%64 != 0 {
						t.Errorf("%d bytes at %p", n, &b[0])
					}
					trade <- x
					take(<-trade)
				}
				made.Done()
				made.Wait()
				for len(trade) > 0 {
					select {
					case y := <-trade:
						take(y)
					default: // another worker has taken the last tensor
					}
				}
				emptied.Done()
				emptied.Wait()
				if m := d.Memory(); m.LiveBytes != 0 {
					t.Errorf("worker %d still pays for %d bytes", 10+w, m.LiveBytes)
				}
			})
		})
	}
	all.Wait()
}

// If a device's cache holds much more than the device ever used at once, the device returns the cache to the system.
func TestCacheIsBounded(t *testing.T) {
	e := load(t)
	onThread(t, e, 5, func(d engine.Device) {
		for n := int64(16); n < 64; n++ {
			must(d.Full(engine.Uint8, []int64{n * mib}, 0)).Free()
			if m := d.Memory(); m.CachedBytes > 3*64*mib+64*mib {
				t.Fatalf("%d MiB are cached after using at most %d MiB", m.CachedBytes/mib, n)
			}
		}
	})
}

func TestScopes(t *testing.T) {
	d := device(t, 0)
	one := func() engine.Tensor { return must(d.Full(engine.Float32, []int64{1}, 1)) }
	alive := func(what string, x engine.Tensor, want bool) {
		t.Helper()
		if _, err := viewOf(d, x); (err == nil) != want {
			t.Errorf("%s: alive is %v", what, err == nil)
		}
	}

	outer := d.Begin()
	a := one()
	inner := d.Begin()
	b, c, e, f := one(), one(), d.Disown(one()), one()
	f.Free()
	d.End(inner, c, a)
	alive("made outside", a, true)
	alive("made inside", b, false)
	alive("kept", c, true)
	alive("disowned", e, true)
	alive("freed by hand", f, false)
	d.Begin()
	g := one()
	d.End(outer, c, nil) // closes the scope inside it too
	alive("of the outer scope", a, false)
	alive("kept twice: the caller's now", c, true)
	alive("of a scope that was not closed", g, false)
	alive("disowned, after all scopes", e, true)
	c.Free()
	e.Free()
	e.Free()

	leaks := one()
	if n := d.Close(); n != 1 {
		t.Errorf("Close found %d handles, want 1", n)
	}
	alive("leaked", leaks, false)

	defer func() {
		if recover() == nil {
			t.Error("End of a scope that is not open went unnoticed")
		}
	}()
	d.End(0)
}

// Charge moves a tensor's bytes to the receiver's account before the receiver adopts it. Charging a freed tensor
// changes nothing.
func TestChargeMovesTheChargeAlone(t *testing.T) {
	e := load(t)
	gift, taken := make(chan engine.Tensor), make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		onThread(t, e, 2, func(d engine.Device) {
			x := d.Disown(must(d.Full(engine.Float32, []int64{100}, 1)))
			held := d.Memory().LiveBytes
			gift <- x
			<-taken
			if less := held - d.Memory().LiveBytes; less != 400 {
				t.Errorf("the sender holds %d bytes less, want 400", less)
			}
		})
	})
	all.Go(func() {
		onThread(t, e, 3, func(d engine.Device) {
			x := <-gift
			for range 2 { // the second call changes nothing
				d.Charge(x)
				if more := d.Memory().LiveBytes; more != 400 {
					t.Errorf("the receiver holds %d bytes, want 400", more)
				}
			}
			must(d.Adopt(x)).Free()
			d.Charge(x) // Charge of an invalid handle changes nothing
			if left := d.Memory().LiveBytes; left != 0 {
				t.Errorf("%d bytes are left", left)
			}
			close(taken)
		})
	})
	all.Wait()
}
