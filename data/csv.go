package data

import (
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
)

// digits are 1,797 handwritten digits of 8x8 pixels from 0 to 16, a row each with the
// class last; see digits.md for where they come from.
//
//go:embed digits.csv.gz
var digits []byte

// testEvery is which rows of a table without a test part are kept for testing.
const testEvery = 5

func openDigits(o Options) (*Set, error) {
	z, err := gzip.NewReader(bytes.NewReader(digits))
	if err != nil {
		return nil, fmt.Errorf("data: the embedded digits: %w", err)
	}
	return readCSV("digits", z, o)
}

// readCSV reads rows of numbers, the class last; a first row without a number is a heading.
func readCSV(name string, r io.Reader, o Options) (*Set, error) {
	in := csv.NewReader(r)
	in.ReuseRecord = true
	in.FieldsPerRecord = -1 // counted here, to say how many there must be
	parts := [2]*table{{}, {}}
	width, row := 0, 0
	for first := true; ; first = false {
		record, err := in.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("data: %s: %w", name, err)
		}
		line, _ := in.FieldPos(0)
		if first {
			width = len(record) - 1
			if width < 1 {
				return nil, fmt.Errorf("data: %s: line %d has one field; a row is numbers and then a class, with commas", name, line)
			}
			if !slices.ContainsFunc(record, isNumber) {
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
		row++
		for i, field := range record[:width] {
			v, err := strconv.ParseFloat(field, 32)
			if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
				return nil, fmt.Errorf("data: %s: line %d, field %d is %q; it must be a number that 32 bits can hold", name, line, i+1, field)
			}
			t.values = append(t.values, float32(v))
		}
		class, err := strconv.ParseFloat(record[width], 32)
		if err != nil || class != math.Trunc(class) || class < 0 || class > 255 {
			return nil, fmt.Errorf("data: %s: line %d, the class %q; it must be a whole number from 0 to 255", name, line, record[width])
		}
		t.labels = append(t.labels, uint8(class))
	}
	if len(parts[1].labels) == 0 {
		return nil, fmt.Errorf("data: %s has %d rows of numbers; it needs %d at least, of which every %dth is for testing", name, row, testEvery, testEvery)
	}
	for i, t := range parts {
		t.order = newOrder(len(t.labels), o.Seed, i == 1)
		t.shape, t.width = []int{width}, width
	}
	return tableSet(name, parts[0], parts[1], o)
}

// isNumber says whether a field is written as a number, even as one that cannot be held.
func isNumber(field string) bool {
	_, err := strconv.ParseFloat(field, 64)
	return err == nil || errors.Is(err, strconv.ErrRange)
}
