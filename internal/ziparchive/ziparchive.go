// Package ziparchive lists the members of untrusted zip archives.
//
// Input: a file. Output: its members; their contents are not read. It refuses an incomplete archive, and a directory
// above the caller's limit before it takes that much memory. The caller judges names, sizes and methods, and closes
// the file.
package ziparchive

import (
	"archive/zip"
	"errors"
	"fmt"
	"io"
	"math"
)

// Members returns the members of an archive of `size` bytes, whose directory may have at most `most` bytes.
func Members(r io.ReaderAt, size, most int64) ([]*zip.File, error) {
	limited := &limited{r: r, left: most}
	z, err := zip.NewReader(limited, size)
	if limited.left < 0 {
		return nil, fmt.Errorf("its list of members has more than %d bytes", most)
	}
	if err != nil {
		return nil, fmt.Errorf("it is no whole zip archive (%w)", err)
	}
	limited.left = math.MaxInt64 // no limit for the members themselves
	return z.File, nil
}

// limited is a reader that fails after this many bytes.
type limited struct {
	r    io.ReaderAt
	left int64
}

func (l *limited) ReadAt(p []byte, at int64) (int, error) {
	if l.left -= int64(len(p)); l.left < 0 {
		return 0, errors.New("too many bytes")
	}
	return l.r.ReadAt(p, at)
}
