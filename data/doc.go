// Package data reads real data sets and hands out batches.
//
// In: a name ("fashion-mnist", "digits") or the path of IDX files, a CSV file, arrays (.npz, .safetensors) or a
// text. Out: a Set with Train and Test splits; a split's Batch is a function of its
// arguments and the seed alone, so that any worker can ask for any rows at any time and
// a resumed run needs no state.
// Refused: files that are missing, cut short or malformed, with the file, the line or
// offset, the value, and what would be right. It knows no other room.
package data

import (
	"fmt"
	"strings"
)

// Array is numbers with a shape, whose first dimension is rows. One of the others is not nil.
type Array struct {
	Shape  []int
	Floats []float32
	Ints   []int64
	Bools  []bool
}

// Batch is arrays of as many rows each, by the names of the inputs that a model reads them as.
type Batch map[string]Array

// DType is the type of an array's elements.
type DType string

// The types of elements.
const (
	Float DType = "float" // Array.Floats
	Int   DType = "int"   // Array.Ints
	Bool  DType = "bool"  // Array.Bools
)

// Field says what one row of an array is.
type Field struct {
	Name  string
	Shape []int // of a row
	DType DType
	// Ranges are what its elements may be, where a model takes them as indices.
	Ranges []Range
}

// Elements is how many numbers a row has.
func (f Field) Elements() int {
	n := 1
	for _, d := range f.Shape {
		n *= d
	}
	return n
}

func (f Field) String() string { return fmt.Sprintf("%s %s%v", f.Name, f.DType, f.Shape) }

// Split is one part of a data set. Its methods may be called from many goroutines.
type Split interface {
	// Len is the number of samples.
	Len() int
	// Batch is rows firstRow to firstRow+rows of the batch that step trains on.
	Batch(step, batchSize, firstRow, rows int) (Batch, error)
}

// Set is a data set.
type Set struct {
	Name        string
	Train, Test Split   // Test: nil where all rows train
	Fields      []Field // what a batch has
	Classes     int     // of targets: 0 to Classes-1; 0: they are none, or it would take long to find
	Tokens      bool    // rows are windows of a text
	// Of a CSV file: the names that its first row gives its columns, nil where it has none; the words that are its
	// classes, by their number, nil where they are numbers; and which rows are kept for testing.
	Heading, ClassNames []string
	Kept                string
	// Stored is the types that a file has arrays in, as NumPy calls them, by their names; nil of other data.
	Stored map[string]string
	// Refused is arrays of a file that cannot be read and that nobody has asked for, with the reason.
	Refused map[string]string
}

// Named is the classes with their numbers, "no = 0, yes = 1", where they are words; empty where they are not.
func (s *Set) Named() string {
	var words []string
	for i, name := range s.ClassNames {
		words = append(words, fmt.Sprintf("%s = %d", name, i))
	}
	return strings.Join(words, ", ")
}

// Options of Open.
type Options struct {
	Seed uint64
	// Fields are what a model reads, and Target which of them has its targets. Data of one input and its
	// target goes by their names, and takes their shapes where these have as many elements: an image for dense
	// layers. A text has as many positions in a row. A file of arrays has one under each name. nil: as the data
	// has them, under "input" and "target" but in such a file.
	Fields []Field
	Target string
	// TrainPart is which part of the rows of an .npz or .safetensors file trains, above 0; with 1 all do, and
	// nothing is evaluated. 0 is DefaultTrainPart. Other data has test rows of its own, and refuses it.
	TrainPart float64
	// Tokenizer makes tokens of a text, one of package tokens; empty leaves its bytes. Other data refuses it.
	Tokenizer string
}
