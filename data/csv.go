package data

import (
	"bufio"
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace-ml/millrace/internal/document"
)

// digits is a compressed CSV file of 1,797 handwritten digits. Each row is 8x8 pixels from 0 to 16, with the class
// last. digits.md gives the origin of the digits.
//
//go:embed digits.csv.gz
var digits []byte

// testEvery says that every fifth row becomes a test row, if a table has no test part.
const testEvery = 5

func openDigits(o Options) (*Set, error) {
	z, err := gzip.NewReader(bytes.NewReader(digits))
	if err != nil {
		return nil, fmt.Errorf("data: the embedded digits: %w", err)
	}
	return readCSV("digits", z, o, normalise) // its numbers are pixels, so all columns get the same scale
}

// maxTableBytes limits the text of a table, and maxLineBytes the text of a line. maxNumbers limits the numbers of a
// table, which take four bytes each.
const (
	maxTableBytes = 1 << 30
	maxLineBytes  = 4 << 20
	maxNumbers    = 1 << 28
)

// shortLines refuses lines that are too long for a row of numbers, before they are held in memory.
type shortLines struct {
	r    io.Reader
	line int // the current line, from 0
	long int // bytes of the current line so far
}

func (s *shortLines) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	for _, c := range p[:n] {
		if s.long++; c == '\n' {
			s.line, s.long = s.line+1, 0
		}
		if s.long > maxLineBytes {
			return n, fmt.Errorf("line %d is longer than %d bytes, and no more are read", s.line+1, maxLineBytes)
		}
	}
	return n, err
}

// withoutMark skips the byte order mark that some programs write before a text in UTF-8.
func withoutMark(r io.Reader) io.Reader {
	b := bufio.NewReaderSize(r, 1<<16)
	if mark, err := b.Peek(3); err == nil && string(mark) == "\ufeff" {
		_, _ = b.Discard(len(mark)) // cannot fail: they have been read
	}
	return b
}

// readCSV reads rows of numbers, with the class last. If no field of the first row is a number, that row is a heading.
// `scale` is applied to the numbers.
func readCSV(name string, r io.Reader, o Options, scale func(train, test *table)) (*Set, error) {
	in := csv.NewReader(withoutMark(&shortLines{r: document.AtMost(r, maxTableBytes)}))
	in.ReuseRecord = true
	in.FieldsPerRecord = -1 // no check by the reader: readCSV counts the fields, for a better error
	parts := [2]*table{{}, {}}
	var heading []string
	var classes classes
	width, row := 0, 0
	for first := true; ; first = false {
		record, err := in.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("data: %s: %w", name, err)
		}
		for i, field := range record {
			record[i] = strings.TrimSpace(field)
		}
		line, _ := in.FieldPos(0)
		if first {
			width = len(record) - 1
			if width < 1 {
				return nil, fmt.Errorf("data: %s: line %d has one field; a row is numbers and then a class, with commas", name,
					line)
			}
			if !slices.ContainsFunc(record, isNumber) {
				heading = slices.Clone(record)
				continue
			}
		}
		if len(record) != width+1 {
			return nil, fmt.Errorf("data: %s: line %d has %d fields; the first row has %d", name, line, len(record), width+1)
		}
		t := parts[0]
		if row%testEvery == testEvery-1 {
			t = parts[1]
		}
		t.rows = append(t.rows, row)
		if row++; row > maxNumbers/width {
			return nil, fmt.Errorf("data: %s: line %d: it has more than %d numbers, and no more are read",
				name, line, maxNumbers)
		}
		for i, field := range record[:width] {
			v, err := strconv.ParseFloat(field, 32)
			if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
				return nil, fmt.Errorf("data: %s: line %d, field %d is %q; it must be a number that 32 bits can hold "+
					"(only the last field, the class, may be a word)", name, line, i+1, field)
			}
			t.values = append(t.values, float32(v))
		}
		class, err := classes.read(record[width], line)
		if err != nil {
			return nil, fmt.Errorf("data: %s: line %d, the class %w", name, line, err)
		}
		t.labels = append(t.labels, class)
	}
	if len(parts[1].labels) == 0 {
		return nil, fmt.Errorf("data: %s has %d of the %d rows of numbers that it needs at least; every %dth is for testing",
			name, row, testEvery, testEvery)
	}
	kept := "every fifth row"
	if !covers(parts[0], parts[1]) {
		if parts = byClass(parts, width); len(parts[1].labels) == 0 {
			return nil, fmt.Errorf("data: %s: no class has %d rows, of which one could be kept for testing; give more rows of "+
				"each", name, testEvery)
		}
		kept += " of each class"
	}
	named := classes.sort(parts)
	for i, t := range parts {
		t.order = newOrder(len(t.labels), o.Seed, i == 1)
		t.width = width
	}
	set, err := tableSet(name, parts[0], parts[1], []int{width}, o, scale)
	if set != nil {
		set.Heading, set.ClassNames, set.Kept = heading, named, kept
	}
	return set, err
}

// covers reports whether every class of the test part also occurs in the training part.
func covers(train, test *table) bool {
	var seen [256]bool
	for _, class := range train.labels {
		seen[class] = true
	}
	return !slices.ContainsFunc(test.labels, func(class uint8) bool { return !seen[class] })
}

// byClass divides rows again, so that every fifth row of each class is a test row. It is used if some class has test
// rows but no training rows, for example because classes repeat every five rows.
func byClass(parts [2]*table, width int) [2]*table {
	out, taken := [2]*table{{}, {}}, [2]int{}
	var count [256]int
	for row := range len(parts[0].labels) + len(parts[1].labels) {
		from := 0
		if row%testEvery == testEvery-1 {
			from = 1
		}
		at := taken[from]
		taken[from]++
		class := parts[from].labels[at]
		to := out[0]
		if count[class]++; count[class]%testEvery == 0 {
			to = out[1]
		}
		to.labels, to.rows = append(to.labels, class), append(to.rows, row)
		to.values = append(to.values, parts[from].values[at*width:(at+1)*width]...)
	}
	return out
}

// isNumber reports whether a field is written as a number, even if no float can hold it.
func isNumber(field string) bool {
	_, err := strconv.ParseFloat(field, 64)
	return err == nil || errors.Is(err, strconv.ErrRange)
}
