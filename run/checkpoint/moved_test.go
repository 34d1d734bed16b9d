//go:build unix

package checkpoint

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/millrace-ml/millrace/engine"
)

// Moved counts the bytes written to a long file before the file is complete.
func TestALongFileMoves(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "stage-0.safetensors")
	if err := syscall.Mkfifo(path, 0o600); err != nil { // like a disk that takes only what the test reads
		t.Skip(err)
	}
	disk, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer disk.Close()
	const whole = 8 << 20
	before, said := Moved(), make(chan error, 1)
	go func() {
		_, err := WriteFile(dir, "stage-0.safetensors", []Tensor{{Name: "w", DType: engine.Float32, Shape: []int64{whole / 4},
			Data: make([]byte, whole)}})
		said <- err
	}()
	if _, err := io.CopyN(io.Discard, disk, whole/2); err != nil {
		t.Fatal(err)
	}
	for since := time.Now(); Moved()-before < whole/4; time.Sleep(time.Millisecond) {
		if time.Since(since) > 20*time.Second {
			t.Fatalf("%d bytes have moved of %d that were written", Moved()-before, whole/2)
		}
	}
	select {
	case err := <-said:
		t.Fatalf("it is written: %v", err)
	default:
	}
	if _, err := io.CopyN(io.Discard, disk, whole/2); err != nil {
		t.Fatal(err)
	}
	if err := <-said; !errors.Is(err, syscall.EINVAL) { // a pipe cannot be synced
		t.Error(err)
	}
}
