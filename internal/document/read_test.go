package document

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

func TestWhatMayNeverEndIsRefused(t *testing.T) {
	dir := t.TempDir()
	fifo, long, link := filepath.Join(dir, "fifo"), filepath.Join(dir, "long"), filepath.Join(dir, "link")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(long, make([]byte, 11), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(fifo, link); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		fifo:                       "is a pipe with a name; give a regular file",
		link:                       "is a pipe with a name; give a regular file",
		"/dev/zero":                "is a device; give a regular file",
		dir:                        "is a folder; give a regular file",
		long:                       "has 11 bytes; at most 10 are read",
		filepath.Join(dir, "none"): "no such file",
	} {
		if _, err := Read(path, 10); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want it to say %q", path, err, want)
		}
	}
	if text, err := Read(long, 11); err != nil || len(text) != 11 {
		t.Errorf("as long as may be: %d bytes (%v)", len(text), err)
	}
}

// TestAPipeThatIsHandedOverIsRead: an inherited pipe, such as a shell's <(command), is read up to the limit.
func TestAPipeThatIsHandedOverIsRead(t *testing.T) {
	for said, want := range map[string]string{"a text": "", "a text that is longer": "it is longer than 10 bytes"} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, said); err != nil {
			t.Fatal(err)
		}
		w.Close()
		text, err := Read(filepath.Join("/proc/self/fd", strconv.Itoa(int(r.Fd()))), 10)
		if want == "" && (err != nil || string(text) != said) ||
			want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: read %q (%v)", said, text, err)
		}
		r.Close()
	}
}

func TestBounded(t *testing.T) {
	for text, want := range map[string]string{
		`{"a": [1, {"b": "[[[[{{\\"["}]}`:  "",
		strings.Repeat("[]", 5) + "\n{":    "line 2: it has more than 5 objects and lists",
		strings.Repeat(`"[" "{" "\""`, 20): "",
		strings.Repeat("[", 64):            "more than 5 objects",
		strings.Repeat("{\n", 5):           "",
	} {
		if err := Bounded([]byte(text), 5); want == "" && err != nil ||
			want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%.20q: got %v, want %q", text, err, want)
		}
	}
	if err := Bounded([]byte("\n"+strings.Repeat("[", MaxDepth+1)), 100); err == nil ||
		!strings.Contains(err.Error(), "line 2: it is nested deeper than 64 levels") {
		t.Error(err)
	}
}

// TestGunzipRefusesBombs: a gzip text that unpacks to far more bytes than any real text is refused.
func TestGunzipRefusesBombs(t *testing.T) {
	member := func(text []byte) []byte {
		var packed bytes.Buffer
		z := gzip.NewWriter(&packed)
		if _, err := z.Write(text); err != nil {
			t.Fatal(err)
		}
		z.Close()
		return packed.Bytes()
	}
	for times, want := range map[int]string{60: "", 100: "it unpacks to over"} {
		z, err := Gunzip(bytes.NewReader(bytes.Repeat(member(make([]byte, 1<<20)), times)))
		if err != nil {
			t.Fatal(err)
		}
		n, err := io.Copy(io.Discard, z)
		if want == "" && (err != nil || n != int64(times)<<20) ||
			want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%d MiB of zeros: %d bytes (%v)", times, n, err)
		}
	}
}

func FuzzBounded(f *testing.F) {
	f.Add(`{"version": 1, "a": ["\\", {}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		var v struct {
			Version int
			A       []any
		}
		_ = Decode([]byte(text), 1, &v)
	})
}
