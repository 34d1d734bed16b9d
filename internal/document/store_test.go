package document

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func (n *noun) check() error {
	if n.Name == "" {
		return errors.New("room: it has no name")
	}
	return nil
}

// nouns returns a Store whose errors say what to do, for files of at most 40 bytes.
func nouns() *Store[noun] {
	return &Store[noun]{Room: "room", Bytes: 40, Missing: "make one", Check: (*noun).check,
		Decode: Versioned("room", 1, "make another", (*noun).check)}
}

// The error for an unreadable file names the room, the reason, what to do about it, and the file.
func TestAStoreSaysWhatIsWrongWithAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "noun")
	for text, want := range map[string]string{
		`{"version": 1, "name": "a"}`: "",
		`{"version": 1, "name": ""}`:  "room: it has no name (in " + path + ")",
		`{"version": 2}`: "room: cannot read it: version is 2; this millrace reads version 1; " +
			"make another (in " + path + ")",
		strings.Repeat(" ", 41): "room: " + path + " has 41 bytes; at most 40 are read",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		n, err := nouns().Read(path)
		if want == "" && (err != nil || n.Name != "a") || want != "" && (err == nil || err.Error() != want) {
			t.Errorf("%q: %+v, %v; want %q", text, n, err, want)
		}
	}
}

func TestAStoreSaysHowToMakeAMissingFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "none")
	if _, err := nouns().Read(path); !errors.Is(err, os.ErrNotExist) || !strings.HasPrefix(err.Error(), "room: ") ||
		!strings.Contains(err.Error(), path) || !strings.HasSuffix(err.Error(), "; make one") {
		t.Error(err)
	}
}

// TestAStoreReadsNoEndlessStream: a stream's length is unknown, but reading ends at the limit.
func TestAStoreReadsNoEndlessStream(t *testing.T) {
	const want = "room: it is longer than 40 bytes, and no more are read"
	if _, err := nouns().From(strings.NewReader(strings.Repeat(" ", 41))); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	n, err := nouns().From(strings.NewReader(`{"version": 1, "name": "a"}`))
	if err != nil || n.Name != "a" {
		t.Errorf("%+v, %v", n, err)
	}
}

// TestAStoreNamesTheFileAsItsRoomDoes: with InFile, a room decides where the file's name is put in an error.
func TestAStoreNamesTheFileAsItsRoomDoes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "noun")
	if err := os.WriteFile(path, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	store := nouns()
	store.InFile = func(err error, path string) error { return fmt.Errorf("%s: %w", filepath.Base(path), err) }
	if _, err := store.Read(path); err == nil || !strings.HasPrefix(err.Error(), "noun: room: ") {
		t.Error(err)
	}
}

// TestAStoreWritesWhatItReads: a value that could not be read again is not written, not even in part.
func TestAStoreWritesWhatItReads(t *testing.T) {
	store := nouns()
	store.Bytes = MaxBytes
	path := filepath.Join(t.TempDir(), "noun")
	if err := store.Write(path, &noun{Version: 1}); err == nil || err.Error() != "room: it has no name" {
		t.Errorf("what would be refused was written: %v", err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file is there: %v", err)
	}
	if err := store.Write(path, &noun{Version: 1, Name: "a"}); err != nil {
		t.Fatal(err)
	}
	if n, err := store.Read(path); err != nil || n.Name != "a" {
		t.Errorf("%+v, %v", n, err)
	}
	store.Encode = func(w io.Writer, n *noun, path string) error {
		_, err := io.WriteString(w, n.Name+" for "+filepath.Base(path))
		return err
	}
	if err := store.Write(path, &noun{Version: 1, Name: "b"}); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "b for noun" {
		t.Errorf("%q, %v", text, err)
	}
	store.Encode = func(w io.Writer, _ *noun, _ string) error {
		_, err := io.WriteString(w, "half")
		return errors.Join(err, errors.New("no more"))
	}
	if err := store.Write(path, &noun{Version: 1, Name: "c"}); err == nil || !strings.HasSuffix(err.Error(), "no more") {
		t.Errorf("half a file: %v", err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "b for noun" {
		t.Errorf("half a file has replaced a whole one: %q, %v", text, err)
	}
	if err := store.Write(filepath.Join(path, "below"), &noun{Version: 1, Name: "b"}); err == nil ||
		!strings.HasPrefix(err.Error(), "room: write ") {
		t.Errorf("a file below a file: %v", err)
	}
}
