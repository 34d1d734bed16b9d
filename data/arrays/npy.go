package arrays

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// A .npy file (numpy/lib/format.py) begins with six magic bytes, and one byte each for the major and the minor version.
// Then come the length of the dictionary (2 bytes in version 1, otherwise 4), a Python dictionary as text, and the
// elements.
const (
	npyMagic  = "\x93NUMPY"
	npyLength = 1 << 16 // bytes of the longest dictionary that is read
	npyRank   = 32      // most dimensions of an array
)

// npy is the header of a .npy file.
type npy struct {
	descr   string // element type in NumPy's notation, such as <f4
	fortran bool
	shape   []int64
}

// readNPY reads the header of an array. It also returns the header's length in bytes.
func readNPY(r io.Reader) (h npy, length int64, err error) {
	var head [12]byte
	n := int64(10)
	if _, err := io.ReadFull(r, head[:n]); err != nil {
		return h, 0, fmt.Errorf("it is shorter than the header of an array: %w", err)
	}
	if !bytes.HasPrefix(head[:], []byte(npyMagic)) {
		return h, 0, fmt.Errorf("it begins %x; an array that NumPy wrote begins %x", head[:6], npyMagic)
	}
	text := uint64(binary.LittleEndian.Uint16(head[8:]))
	switch major, minor := head[6], head[7]; {
	case major < 1 || major > 3 || minor != 0:
		return h, 0, fmt.Errorf("version %d.%d of the format; 1.0, 2.0 and 3.0 are read", major, minor)
	case major > 1:
		n = 12
		if _, err := io.ReadFull(r, head[10:]); err != nil {
			return h, 0, fmt.Errorf("it is shorter than the header of an array: %w", err)
		}
		text = uint64(binary.LittleEndian.Uint32(head[8:]))
	}
	if text > npyLength {
		return h, 0, fmt.Errorf("a header of %d bytes; at most %d are read", text, npyLength)
	}
	dictionary := make([]byte, text)
	if _, err := io.ReadFull(r, dictionary); err != nil {
		return h, 0, fmt.Errorf("it ends within its header: %w", err)
	}
	h, err = parseNPY(string(dictionary))
	if err != nil {
		return h, 0, fmt.Errorf("its header %.200q: %w", strings.TrimSpace(string(dictionary)), err)
	}
	return h, n + int64(text), nil
}

// parseNPY reads a dictionary like {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }.
func parseNPY(text string) (h npy, err error) {
	p := &python{rest: text}
	seen := map[string]bool{}
	if !p.take("{") {
		return h, errors.New("it is no dictionary")
	}
	for !p.take("}") {
		key, err := p.text()
		if err != nil {
			return h, fmt.Errorf("a key: %w", err)
		}
		if seen[key] {
			return h, fmt.Errorf("%.20q is there twice", key)
		}
		seen[key] = true
		if !p.take(":") {
			return h, fmt.Errorf("no colon follows %.20q", key)
		}
		switch key {
		case "descr":
			if p.take("[") {
				return h, errors.New("it is a structured array; give a plain one for each of its fields")
			}
			h.descr, err = p.text()
		case "fortran_order":
			switch {
			case p.take("True"):
				h.fortran = true
			case !p.take("False"):
				err = errors.New("it is True or False")
			}
		case "shape":
			h.shape, err = p.shape()
		default:
			err = errors.New("descr, fortran_order and shape are the keys")
		}
		if err != nil {
			return h, fmt.Errorf("%.20q: %w", key, err)
		}
		if !p.take(",") && !strings.HasPrefix(p.rest, "}") {
			return h, fmt.Errorf("neither a comma nor the end follows %q", key)
		}
	}
	for _, key := range []string{"descr", "fortran_order", "shape"} {
		if !seen[key] {
			return h, fmt.Errorf("there is no %q", key)
		}
	}
	if strings.Trim(p.rest, " \n") != "" {
		return h, errors.New("something follows the dictionary")
	}
	return h, nil
}

// python reads Python literals from a text; `rest` is the text that has not been read yet.
type python struct{ rest string }

// take skips a word, and the spaces around it, if the rest begins with this word.
func (p *python) take(word string) bool {
	rest, ok := strings.CutPrefix(strings.TrimLeft(p.rest, " "), word)
	if ok {
		p.rest = strings.TrimLeft(rest, " ")
	}
	return ok
}

// text reads a quoted string without escapes.
func (p *python) text() (string, error) {
	for _, quote := range []string{"'", `"`} {
		if !strings.HasPrefix(p.rest, quote) {
			continue
		}
		text, rest, ok := strings.Cut(p.rest[1:], quote)
		if !ok || strings.ContainsAny(text, "\\\n") {
			return "", errors.New("a text has no end, or escapes")
		}
		p.rest = strings.TrimLeft(rest, " ")
		return text, nil
	}
	return "", errors.New("no text in quotes is there")
}

// shape reads a tuple of whole numbers.
func (p *python) shape() ([]int64, error) {
	if !p.take("(") {
		return nil, errors.New("it is no tuple")
	}
	shape := []int64{}
	for comma := true; !p.take(")"); {
		if !comma {
			return nil, errors.New("no comma is between two sizes")
		}
		digits := len(p.rest) - len(strings.TrimLeft(p.rest, "0123456789"))
		n, err := strconv.ParseInt(p.rest[:digits], 10, 64)
		if err != nil {
			return nil, errors.New("a size is no whole number of 64 bits, 0 or more")
		}
		if shape = append(shape, n); len(shape) > npyRank {
			return nil, fmt.Errorf("it has more than %d dimensions", npyRank)
		}
		p.rest = p.rest[digits:]
		comma = p.take(",")
		if len(shape) == 1 && !comma {
			return nil, errors.New("a tuple of one size has a comma behind it")
		}
	}
	return shape, nil
}
