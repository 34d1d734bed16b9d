package torch_test

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/engine"
	"github.com/millrace-ml/millrace/engine/torch"
)

// load returns the engine, or skips the test if libtorch or cgo is missing.
func load(t testing.TB) *torch.Engine {
	t.Helper()
	e, err := torch.Open()
	if errors.Is(err, torch.ErrNotFound) || errors.Is(err, torch.ErrNoCgo) {
		t.Skipf("libtorch is not installed: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// device opens a device on the test's own thread. At the end it checks that the test has freed every handle.
func device(t testing.TB, worker int) engine.Device {
	t.Helper()
	e := load(t)
	runtime.LockOSThread()
	d, err := e.Open(worker, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if n := d.Close(); n != 0 {
			t.Errorf("%d handles were left open", n)
		}
		runtime.UnlockOSThread()
	})
	return d
}

// must unwraps calls that fail only if the test itself is wrong.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// needsKernels skips a test of properties that only millrace's own CPU kernels have, not libtorch's operators.
func needsKernels(t *testing.T) {
	t.Helper()
	if load(t).Info().Kernels == "none" {
		t.Skip("the native library runs without kernels")
	}
}

// needsProducts skips a test of properties that only this library's products have. A BLAS may add in an order that
// depends on the numbers of rows and threads.
func needsProducts(t *testing.T) {
	t.Helper()
	needsKernels(t)
	if load(t).Info().Kernels != "AVX-512" {
		t.Skip("without AVX-512 BLAS computes products")
	}
}

// Without millrace's kernels, libtorch's own operators compute the same formulas. The operators' tests pass with them
// too, except those that needsKernels skips.
func TestWithoutKernels(t *testing.T) {
	load(t)
	if os.Getenv("MILLRACE_KERNELS") == "none" {
		t.Skip("this is without kernels")
	}
	c := exec.Command(os.Args[0], "-test.run", "Fused|Gelu|Attention|Norm|Pool|LSTM|Product|WeightsHalf|Threads|Mask",
		"-test.v")
	c.Env = append(os.Environ(), "MILLRACE_KERNELS=none")
	said, err := c.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, said)
	}
	if n := strings.Count(string(said), "without kernels"); n != 3 {
		t.Errorf("%d tests see that there are no kernels; 3 ask for them\n%s", n, said)
	}
}

// viewOf returns the memory of a contiguous tensor.
func viewOf(d engine.Device, t engine.Tensor) ([]byte, error) {
	return d.(interface {
		View(engine.Tensor) ([]byte, error)
	}).View(t)
}
