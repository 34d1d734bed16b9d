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

// readCSV reads rows of numbers, the class last; a first row that is no numbers is a heading.
func readCSV(name string, r io.Reader, o Options) (*Set, error) {
	in := csv.NewReader(r)
	in.ReuseRecord = true
	parts := [2]*table{{}, {}}
	width, row := 0, 0
	for line := 1; ; line++ {
		record, err := in.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("data: %s: %w", name, err)
		}
		if line == 1 {
			width = len(record) - 1
			if width < 1 {
				return nil, fmt.Errorf("data: %s: line 1 has one field; a row is numbers and then a class", name)
			}
			if _, err := strconv.ParseFloat(record[0], 32); err != nil {
				continue
			}
		}
		t := parts[0]
		if row%testEvery == testEvery-1 {
			t = parts[1]
		}
		row++
		for i, field := range record[:width] {
			v, err := strconv.ParseFloat(field, 32)
			if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
				return nil, fmt.Errorf("data: %s: line %d, field %d is %q; it must be a number", name, line, i+1, field)
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
		return nil, fmt.Errorf("data: %s has %d rows; it needs %d at least", name, row, testEvery)
	}
	for i, t := range parts {
		t.order = newOrder(len(t.labels), o.Seed, i == 1)
		t.shape, t.width = []int{width}, width
	}
	return tableSet(name, parts[0], parts[1], o)
}
