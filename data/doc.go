// Package data reads real data sets and hands out batches.
//
// Input: a name ("fashion-mnist", "digits"), or the path of IDX files, a CSV file, arrays (.npz, .safetensors) or a
// text. Output: a Set with Train and Test splits. A split's Batch depends only on its arguments and the seed. So any
// worker can ask for any rows at any time, and a resumed run needs no state. Files that are missing, cut short or
// malformed give an error with the file, the line or offset, the value, and what would be right. The package imports no
// other top-level package of millrace.
package data

import (
	"fmt"
	"strings"
)

// Array holds numbers with a shape, whose first dimension is the rows. Exactly one of Floats, Ints and Bools is set.
type Array struct {
	Shape  []int
	Floats []float32
	Ints   []int64
	Bools  []bool
}

// Batch has an array for each input of a model, by the input's name. All arrays have the same number of rows.
type Batch map[string]Array

// DType is the type of an array's elements.
type DType string

// The types of elements.
const (
	Float DType = "float" // the elements are in Array.Floats
	Int   DType = "int"   // the elements are in Array.Ints
	Bool  DType = "bool"  // the elements are in Array.Bools
)

// Field describes one row of an array.
type Field struct {
	Name  string
	Shape []int // shape of a row
	DType DType
	// Ranges limit the numbers of an Int that the model uses as an index. Numbers outside are refused.
	Ranges []Range
}

// Elements returns how many numbers a row has.
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
	// Len returns the number of samples.
	Len() int
	// Batch returns the rows of a step's batch from firstRow up to, but not including, firstRow+rows.
	Batch(step, batchSize, firstRow, rows int) (Batch, error)
}

// Set is a data set.
type Set struct {
	Name        string
	Train, Test Split   // Test is nil if all rows are training rows
	Fields      []Field // the arrays of a batch
	Classes     int     // targets are 0 to Classes-1; 0: targets are not classes, or counting them would take too long
	Tokens      bool    // rows are windows of a text
	// Heading, ClassNames and Kept are set for a CSV file. Heading has the column names of its first row (nil: none).
	// ClassNames has the word of each class by number (nil: classes are numbers). Kept says which rows are test rows.
	Heading, ClassNames []string
	Kept                string
	// Stored and Refused are set for a file of arrays. Their keys are the names of the arrays. Stored holds an array's
	// type in the file, by NumPy's name for the type. Refused says why an array cannot be read. If Options.Fields are
	// given, Refused is empty.
	Stored, Refused map[string]string
}

// Named lists the classes that are words with their numbers: "no = 0, yes = 1". It is empty if classes are numbers.
func (s *Set) Named() string {
	var words []string
	for i, name := range s.ClassNames {
		words = append(words, fmt.Sprintf("%s = %d", name, i))
	}
	return strings.Join(words, ", ")
}

// Options control how Open reads data.
type Options struct {
	Seed uint64
	// Fields are the inputs of a model, and Target is the name of the input with its targets. A data set with one input
	// and one target takes the names of Fields. It also takes their shapes if the number of elements agrees (dense
	// layers may read an image). A text takes its row length from Fields. A file of arrays must have an array under
	// each name. If Fields is nil, rows keep the data's own shapes. Their names are then "input" and "target", or those
	// of a file's arrays.
	Fields []Field
	Target string
	// TrainPart is the fraction of an .npz or .safetensors file's rows that are training rows. It is above 0, at most 1.
	// The other rows are test rows. 0 means DefaultTrainPart. Other kinds of data have test rows of their own, and
	// refuse any value except 0.
	TrainPart float64
	// Tokenizer is the name of a tokenizer of package tokens; empty: a text is read as bytes. Other kinds of data
	// refuse it.
	Tokenizer string
}
