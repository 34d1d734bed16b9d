package data

import (
	"fmt"
	"math"
	"slices"
	"strconv"
)

// mostClasses is the largest number of classes of a table.
const mostClasses = 256

// classes holds the classes of a CSV file: whole numbers, or words. Words are numbered in the order of reading, until
// sort numbers them in sorted order.
type classes struct {
	number map[string]uint8 // number of each word; nil: the classes are numbers
	words  []string         // by number
	first  int              // the line that decided between numbers and words; 0: none yet
}

// read returns the class of a row. The first row decides whether all classes are numbers or words.
func (c *classes) read(field string, line int) (uint8, error) {
	if c.first == 0 {
		c.first = line
		if !isNumber(field) && field != "" {
			c.number = map[string]uint8{}
		}
	}
	if c.number == nil {
		class, err := strconv.ParseFloat(field, 32)
		switch {
		case err != nil && c.first < line && field != "":
			return 0, fmt.Errorf("%q is a word, and that of line %d is a number; give all as words or all as numbers", field,
				c.first)
		case err != nil || class != math.Trunc(class) || class < 0 || class >= mostClasses:
			return 0, fmt.Errorf("%q; it must be a whole number from 0 to %d, or all classes words", field, mostClasses-1)
		}
		return uint8(class), nil
	}
	if field == "" {
		return 0, fmt.Errorf("is missing")
	}
	if isNumber(field) {
		return 0, fmt.Errorf("%q is a number, and that of line %d is a word; give all as words or all as numbers", field,
			c.first)
	}
	number, ok := c.number[field]
	if !ok {
		if len(c.words) == mostClasses {
			return 0, fmt.Errorf("%q is one more than %d classes, which are the most", field, mostClasses)
		}
		number = uint8(len(c.words))
		c.number[field], c.words = number, append(c.words, field)
	}
	return number, nil
}

// sort numbers the words in sorted order, whatever the order of rows, and returns them. It also changes the labels of
// both parts. It returns nil if classes are numbers.
func (c *classes) sort(parts [2]*table) []string {
	if c.number == nil {
		return nil
	}
	sorted := slices.Sorted(slices.Values(c.words))
	to := make([]uint8, len(c.words))
	for i, word := range c.words {
		at, _ := slices.BinarySearch(sorted, word)
		to[i] = uint8(at)
	}
	for _, t := range parts {
		for i, class := range t.labels {
			t.labels[i] = to[class]
		}
	}
	return sorted
}
