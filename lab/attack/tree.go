package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
)

// tree describes what is below a folder: the kind of each path, and the size and digest of each file. For a file larger
// than `digested`, it has the digest of the first bytes and the time of the last change.
type tree map[string]string

// unfinished matches the names of files that were being written.
var unfinished = regexp.MustCompile(`\.partial$|\.replaced$|\.tmp$|(^|/)\.millrace-|(^|/)\.[^/]*-[0-9]+$`)

// digested is how many of a file's first bytes are read. Some inputs claim many gigabytes.
const digested = 64 << 20

// treeOf reads the tree below a folder.
func treeOf(root string) (tree, error) {
	t := tree{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // the file was deleted meanwhile
		}
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		t[name], err = entry(path, d)
		return err
	})
	return t, err
}

func entry(path string, d fs.DirEntry) (string, error) {
	if d.Type()&fs.ModeSymlink != 0 {
		to, err := os.Readlink(path)
		return "link to " + to, err
	}
	if !d.Type().IsRegular() {
		return d.Type().String(), nil
	}
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, io.LimitReader(f, digested)); err != nil {
		return "", err
	}
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	text := fmt.Sprintf("%d bytes, %x", info.Size(), sum.Sum(nil))
	if info.Size() > digested {
		text += fmt.Sprint(", changed at ", info.ModTime().UnixNano())
	}
	return text, nil
}

// changes lists the paths that are new, gone or different compared with the tree `before`, except those for which the
// function `may` returns true.
func (t tree) changes(before tree, may func(path string) bool) []string {
	all := maps.Clone(before)
	maps.Copy(all, t)
	var found []string
	for _, path := range slices.Sorted(maps.Keys(all)) {
		was, old := before[path]
		is, now := t[path]
		if was == is || may(path) {
			continue
		}
		switch {
		case !old:
			found = append(found, fmt.Sprintf("left %+q behind", path))
		case !now:
			found = append(found, fmt.Sprintf("removed %+q", path))
		default:
			found = append(found, fmt.Sprintf("changed %+q", path))
		}
	}
	return found
}

// halfWritten lists new paths whose names say that they are still being written.
func (t tree) halfWritten(before tree) []string {
	return t.changes(before, func(path string) bool {
		_, old := before[path]
		return old || !unfinished.MatchString(path)
	})
}
