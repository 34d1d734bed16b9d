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

// Array is numbers with a shape, whose first dimension is rows. Exactly one of Floats, Ints and Bools is set.
type Array struct {
	Shape  []int
	Floats []float32
	Ints   []int64
	Bools  []bool
}

// Batch has an array for each input of a model, by the input's name. All have the same number of rows.
type Batch map[string]Array

// DType is the type of an array's elements.
type DType string

// The types of elements.
const (
	Float DType = "float" // Array.Floats
	Int   DType = "int"   // Array.Ints
	Bool  DType = "bool"  // Array.Bools
)

// Field describes one row of an array.
type Field struct {
	Name  string
	Shape []int // of a row
	DType DType
	// Ranges say which numbers an Int may be where the model uses it as an index. Other numbers are refused.
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
	Classes     int     // targets are 0 to Classes-1; 0: they are no classes, or counting them would take long
	Tokens      bool    // rows are windows of a text
	// Heading, ClassNames and Kept are set for a CSV file: the column names of its first row (nil: it has none), the
	// word of each class by its number (nil: classes are numbers), and which rows are kept for testing.
	Heading, ClassNames []string
	Kept                string
	// Stored and Refused are set for a file of arrays, by the arrays' names: the type that each is stored in, as NumPy
	// calls it, and why an array that nobody asked for cannot be read.
	Stored, Refused map[string]string
}

// Named lists classes that are words with their numbers: "no = 0, yes = 1". It is empty where classes are numbers.
func (s *Set) Named() string {
	var words []string
	for i, name := range s.ClassNames {
		words = append(words, fmt.Sprintf("%s = %d", name, i))
	}
	return strings.Join(words, ", ")
}

// Options say how Open reads data.
type Options struct {
	Seed uint64
	// Fields are what a model reads, and Target names the one with its targets. Data of one input and one target takes
	// their names, and their shapes where the number of elements agrees (an image may be read by dense layers). A text
	// takes its row length from them. A file of arrays must have an array under each name. nil: rows have the data's own
	// shapes, under "input" and "target", or under a file's names of arrays.
	Fields []Field
	Target string
	// TrainPart is the part of an .npz or .safetensors file's rows that trains, above 0 and at most 1. The others
	// evaluate. 0 is DefaultTrainPart. Other data has test rows of its own, and refuses any other value.
	TrainPart float64
	// Tokenizer names the one of package tokens that makes tokens of a text; empty: a row is bytes. Other data refuses
	// it.
	Tokenizer string
}
