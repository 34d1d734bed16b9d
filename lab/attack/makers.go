package main

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// makers make the files that the table cannot contain as text: large, binary, or slightly different from a fixture.
// Each maker gets the path to create, the folder of fixtures, and the words after its name.
var makers = map[string]func(path, fixtures string, words []string) error{
	"bytes":   makeBytes,   // bytes "\x00...": these bytes, with Go's escapes
	"repeat":  makeRepeat,  // repeat TEXT TIMES [FRONT [END]]
	"gzip":    makeGzip,    // gzip TEXT TIMES [FRONT [END]]: like repeat, but compressed
	"copy":    makeCopy,    // copy FIXTURE: a file or a folder
	"edit":    makeEdit,    // edit FIXTURE OLD NEW ...: replaces every OLD, which must occur
	"pack":    makePacked,  // pack FIXTURE OLD NEW ...: like edit, in a compressed file
	"cut":     makeCut,     // cut FIXTURE BYTES: this many bytes from its beginning
	"flip":    makeFlip,    // flip FIXTURE OFFSET: flips one bit of a byte; negative: from the end
	"claim":   makeClaim,   // claim BYTES: a sparse file of this size, without data
	"fifo":    makeFIFO,    // fifo
	"folder":  makeFolder,  // folder
	"link":    makeLink,    // link TARGET
	"closed":  makeClosed,  // closed: a folder without write permission
	"program": makeProgram, // program LINES...: a Program of two stages with these lines
}

func (f *file) make(dir, fixtures string) error {
	path := filepath.Join(dir, f.path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if f.maker == nil {
		return os.WriteFile(path, f.text, 0o644)
	}
	maker, ok := makers[f.maker[0]]
	if !ok {
		return fmt.Errorf("%s: nothing makes %q", f.path, f.maker[0])
	}
	if err := maker(path, fixtures, f.maker[1:]); err != nil {
		return fmt.Errorf("%s: %w", f.path, err)
	}
	return nil
}

func makeBytes(path, _ string, words []string) error {
	return os.WriteFile(path, []byte(strings.Join(words, " ")), 0o644)
}

// repeated is the text of TEXT TIMES [FRONT [END]] in parts. The text is `front`, then `blocks` times `block`, then
// `rest` and `end`. A block is many TEXTs, of about blockSize bytes together. `rest` has the TEXTs that do not fill a
// block.
type repeated struct {
	front, block, rest, end string
	blocks                  int
}

// blockSize is the approximate length of a block, in bytes.
const blockSize = 1 << 24

func repeat(words []string) (*repeated, error) {
	if len(words) < 2 || len(words) > 4 || words[0] == "" {
		return nil, fmt.Errorf("%q; the form is TEXT TIMES [FRONT [END]]", words)
	}
	times, err := strconv.Atoi(words[1])
	if err != nil {
		return nil, err
	}
	each := max(1, blockSize/len(words[0]))
	r := &repeated{blocks: times / each, rest: strings.Repeat(words[0], times%each)}
	if r.blocks > 0 {
		r.block = strings.Repeat(words[0], each)
	}
	if len(words) > 2 {
		r.front = words[2]
	}
	if len(words) > 3 {
		r.end = words[3]
	}
	return r, nil
}

func makeRepeat(path, _ string, words []string) error {
	r, err := repeat(words)
	if err != nil {
		return err
	}
	text := r.front + strings.Repeat(r.block, r.blocks) + r.rest + r.end
	return os.WriteFile(path, []byte(text), 0o644)
}

// makeGzip compresses a block only once, because compressed parts in sequence decompress to the whole text.
func makeGzip(path, _ string, words []string) error {
	r, err := repeat(words)
	if err != nil {
		return err
	}
	text := packed([]byte(r.front))
	text = append(text, bytes.Repeat(packed([]byte(r.block)), r.blocks)...)
	return os.WriteFile(path, append(text, packed([]byte(r.rest+r.end))...), 0o644)
}

func makeCopy(path, fixtures string, words []string) error {
	from := filepath.Join(fixtures, words[0])
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return os.CopyFS(path, os.DirFS(from))
	}
	text, err := os.ReadFile(from)
	return errors.Join(err, os.WriteFile(path, text, 0o644))
}

// edited replaces each OLD in `pairs` by the NEW that follows it.
func edited(text []byte, pairs []string) ([]byte, error) {
	for i := 0; i+1 < len(pairs); i += 2 {
		if !bytes.Contains(text, []byte(pairs[i])) {
			return nil, fmt.Errorf("there is no %q to replace", pairs[i])
		}
		text = bytes.ReplaceAll(text, []byte(pairs[i]), []byte(pairs[i+1]))
	}
	return text, nil
}

func makeEdit(path, fixtures string, words []string) error {
	text, err := os.ReadFile(filepath.Join(fixtures, words[0]))
	if err != nil {
		return err
	}
	if text, err = edited(text, words[1:]); err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o644)
}

func makePacked(path, fixtures string, words []string) error {
	text, err := unpacked(filepath.Join(fixtures, words[0]))
	if err != nil {
		return err
	}
	if text, err = edited(text, words[1:]); err != nil {
		return err
	}
	return os.WriteFile(path, packed(text), 0o644)
}

// unpacked reads a gzip file.
func unpacked(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(z)
}

func packed(text []byte) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write(text) // writes to memory
	_ = z.Close()
	return b.Bytes()
}

func makeCut(path, fixtures string, words []string) error {
	text, err := os.ReadFile(filepath.Join(fixtures, words[0]))
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(words[1])
	if err != nil {
		return err
	}
	return os.WriteFile(path, text[:min(n, len(text))], 0o644)
}

func makeFlip(path, fixtures string, words []string) error {
	text, err := os.ReadFile(filepath.Join(fixtures, words[0]))
	if err != nil {
		return err
	}
	at, err := strconv.Atoi(words[1])
	if err != nil {
		return err
	}
	if at < 0 {
		at += len(text)
	}
	text[at] ^= 1
	return os.WriteFile(path, text, 0o644)
}

func makeClaim(path, _ string, words []string) error {
	n, err := strconv.ParseInt(words[0], 10, 64)
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(path, nil, 0o644), os.Truncate(path, n))
}

func makeFIFO(path, _ string, _ []string) error {
	_ = os.Remove(path) // the file may be part of a folder that was copied
	return syscall.Mkfifo(path, 0o644)
}

func makeFolder(path, _ string, _ []string) error {
	_ = os.Remove(path)
	return os.MkdirAll(path, 0o755)
}

func makeLink(path, _ string, words []string) error { return os.Symlink(words[0], path) }

func makeClosed(path, _ string, _ []string) error { return os.MkdirAll(path, 0o555) }

// makeProgram writes a Program of two stages on two workers. Words that begin with a digit replace its lists; other
// words change or add a setting, one line each.
func makeProgram(path, _ string, words []string) error {
	settings := []string{"name by-hand", "stages 2", "workers 2", "micro_batches 2", "period 1", "repeat 1",
		"weights sync", "replication split", "lowered false", "place p0/0: 0", "place p0/1: 1"}
	lists := []string{"0: 0F0 0F1 0B0 0B1", "1: 1F0 1B0 1F1 1B1"}
	given := false
	for _, w := range words {
		if w[0] >= '0' && w[0] <= '9' {
			if !given {
				lists, given = nil, true
			}
			lists = append(lists, w)
			continue
		}
		key, _, _ := strings.Cut(w, " ")
		if key == "place" {
			key = strings.SplitAfter(w, ":")[0]
		}
		known := false
		for i, s := range settings {
			if strings.HasPrefix(s, key+" ") || s == key {
				settings[i], known = w, true
			}
		}
		if !known {
			settings = append(settings, w)
		}
	}
	text := "millrace program 1\n" + strings.Join(settings, "\n") + "\nbody\n" + strings.Join(lists, "\n") + "\n"
	return os.WriteFile(path, []byte(text), 0o644)
}
