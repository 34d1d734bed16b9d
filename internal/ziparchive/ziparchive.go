// Package ziparchive lists the members of zip archives that strangers have made.
//
// In: a file. Out: its members, none of them read. Refused: what is no whole zip archive, and a directory of more
// bytes than the caller allows, before it takes as much memory.
// Its driver judges names, sizes and methods, and closes the file.
package ziparchive

import (
	"archive/zip"
	"errors"
	"fmt"
	"io"
	"math"
)

// Members lists the members of an archive of size bytes, whose directory has at most so many.
func Members(r io.ReaderAt, size, most int64) ([]*zip.File, error) {
	limited := &limited{r: r, left: most}
	z, err := zip.NewReader(limited, size)
	if limited.left < 0 {
		return nil, fmt.Errorf("its list of members has more than %d bytes", most)
	}
	if err != nil {
		return nil, fmt.Errorf("it is no whole zip archive (%w)", err)
	}
	limited.left = math.MaxInt64 // for the members themselves
	return z.File, nil
}

// limited reads so many bytes and no more.
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
