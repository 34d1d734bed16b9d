package torch_test

import (
	"encoding/binary"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/engine/torch"
)

func TestLoadIsOnce(t *testing.T) {
	e := load(t)
	again, err := torch.Load(e.Info().Native)
	if err != nil || again != e {
		t.Errorf("the same file gave %p, %v; want %p", again, err, e)
	}
	if _, err := torch.Load("/nowhere/else.so"); err == nil || !strings.Contains(err.Error(), "is loaded already") {
		t.Errorf("another file: %v", err)
	}
	if !strings.HasPrefix(e.Name(), "torch ") || e.Float() != engine.Float32 {
		t.Errorf("it is %q with %v", e.Name(), e.Float())
	}
}

func TestOpenRefuses(t *testing.T) {
	e := load(t)
	for _, c := range []struct {
		worker, threads int
		want            string
	}{
		{-1, 1, "worker -1 is outside 0.."},
		{1 << 20, 1, "worker 1048576 is outside 0.."},
		{0, 0, "0 threads; at least 1"},
	} {
		if _, err := e.Open(c.worker, c.threads); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("Open(%d, %d): %v", c.worker, c.threads, err)
		}
	}
}

func TestThreadsAreSet(t *testing.T) {
	e := load(t)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for _, n := range []int{2, 1} {
		d, err := e.Open(0, n)
		if err != nil {
			t.Fatal(err)
		}
		if got := e.Info().Threads; got != n {
			t.Errorf("opened with %d threads, Info says %d", n, got)
		}
		d.Close()
	}
}

func TestInfoSaysWhatIsLoaded(t *testing.T) {
	i := load(t).Info()
	if i.Torch == "" || i.BLAS == "unknown" || !strings.Contains(i.Library, "libtorch_cpu") || i.BLASLibrary == "" ||
		i.Native == "" {
		t.Errorf("%+v", i)
	}
	if i.BLAS == "OpenBLAS" && (i.BLASCore == "" || i.BLASConfig == "") {
		t.Errorf("OpenBLAS says nothing of itself: %+v", i)
	}
}

func TestSumInto(t *testing.T) {
	e := load(t)
	floats := func(v ...float32) []byte {
		var b []byte
		for _, f := range v {
			b = binary.NativeEndian.AppendUint32(b, math.Float32bits(f))
		}
		return b
	}
	dst := append([]byte{0}, floats(1, 2, 1e8)...)[1:] // not aligned
	if err := e.SumInto(dst, floats(0.5, -2, 1), engine.Float32); err != nil || !slices.Equal(dst, floats(1.5, 0, 1e8)) {
		t.Errorf("floats: %v, %v", dst, err)
	}
	long := binary.NativeEndian.AppendUint64(nil, 40)
	if err := e.SumInto(long, binary.NativeEndian.AppendUint64(nil, 2), engine.Int64); err != nil ||
		binary.NativeEndian.Uint64(long) != 42 {
		t.Errorf("ints: %v, %v", long, err)
	}
	if err := e.SumInto(nil, nil, engine.Float64); err != nil {
		t.Errorf("nothing: %v", err)
	}
	for _, c := range []struct {
		dst, src int
		dtype    engine.DType
		want     string
	}{
		{4, 8, engine.Float32, "8 bytes into 4"},
		{6, 6, engine.Float32, "no whole number of F32"},
		{1, 1, engine.Bool, "BOOL have no sum"},
		{1, 1, engine.DType(0), "have no sum"},
	} {
		if err := e.SumInto(make([]byte, c.dst), make([]byte, c.src), c.dtype); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%d into %d of %v: %v", c.src, c.dst, c.dtype, err)
		}
	}
}
