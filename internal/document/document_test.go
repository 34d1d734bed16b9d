package document

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
)

type noun struct {
	Version int    `json:"version"`
	Name    string `json:"name"`
}

func TestDecodeRefuses(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{`{"version":1,"na`, "not a whole JSON object"},
		{``, "not a whole JSON object"},
		{`{"name":"a"}`, "version is none; this millrace reads version 1"},
		{`{"version":2,"other":{}}`, "version is 2; this millrace reads version 1"},
		{`{"version":1,"nam":"a"}`, `unknown field "nam"`},
		{`{"version":1,"name":3}`, "name is a JSON number"},
	} {
		var n noun
		err := Decode([]byte(c.text), 1, &n)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error is %v; want %q in it", c.text, err, c.want)
		}
		if cut := strings.HasPrefix(c.want, "not a whole"); errors.Is(err, ErrCut) != cut {
			t.Errorf("%s: matches ErrCut: %v", c.text, !cut)
		}
	}
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.json")
	if err := WriteJSON(path, noun{1, "a"}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var n noun
	if err := Decode(text, 1, &n); err != nil || n.Name != "a" {
		t.Errorf("read %+v, error %v", n, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("mode %v, error %v", info.Mode(), err)
	}
}

func TestAFailedWriteLeavesTheOldFileAlone(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.json")
	if err := os.WriteFile(path, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	err := Write(path, func(w io.Writer) error {
		io.WriteString(w, "half")
		return &os.PathError{Op: "write", Path: "/a/name/nobody/gave", Err: syscall.ENOSPC}
	})
	if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), path) ||
		strings.Contains(err.Error(), "nobody") {
		t.Errorf("error is %v; want the path and that the disk is full, no other name", err)
	}
	if text, _ := os.ReadFile(path); string(text) != "old" {
		t.Errorf("the old file became %q", text)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("%d files are left; want the old one alone", len(entries))
	}
}

func TestWriteNamesAFolderThatIsNotThere(t *testing.T) {
	path := filepath.Join(t.TempDir(), "none", "a.json")
	err := WriteJSON(path, noun{})
	if !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), path) {
		t.Errorf("error is %v; want %s and that its folder is not there", err, path)
	}
}

// FuzzDecode: a text that Decode accepts has this version, and its value stays the same when it is written and read
// again.
func FuzzDecode(f *testing.F) {
	for _, text := range []string{`{"version": 1, "name": "a"}`, `{"version": 2}`, `{"name": "a"}`, `{"version": 1, "nam`,
		`{"version": 1} {}`, `[]`, `null`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var n noun
		if Decode(text, 1, &n) != nil {
			return
		}
		if n.Version != 1 {
			t.Fatalf("%q is of version %d", text, n.Version)
		}
		again, err := json.Marshal(n)
		if err != nil {
			t.Fatal(err)
		}
		var m noun
		if err := Decode(again, 1, &m); err != nil || !reflect.DeepEqual(m, n) {
			t.Errorf("%q is %+v, written as %s and read as %+v, %v", text, n, again, m, err)
		}
	})
}

// TestUntilAContextEnds: when the context ends, Write gives up, and leaves neither the file nor the temporary file.
func TestUntilAContextEnds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	ctx, end := context.WithCancelCause(t.Context())
	cause := errors.New("stopped")
	err := Write(path, func(w io.Writer) error {
		to := Until(ctx, w)
		if n, err := to.Write([]byte("first")); n != 5 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
		end(cause)
		_, err := to.Write([]byte("second"))
		return err
	})
	if !errors.Is(err, cause) {
		t.Errorf("it ends with %v", err)
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) > 0 {
		t.Errorf("it leaves %v, %v", left, err)
	}
}
