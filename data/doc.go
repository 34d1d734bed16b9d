// Package data reads real data sets and hands out batches.
//
// In: a name ("fashion-mnist", "digits") or the path of IDX files, a CSV file or a
// text. Out: a Set with Train and Test splits; a split's Batch is a function of its
// arguments and the seed alone, so that any worker can ask for any rows at any time and
// a resumed run needs no state.
// Refused: files that are missing, cut short or malformed, with the file, the line or
// offset, the value, and what would be right. It knows no other room.
package data

// Array is numbers with a shape. Exactly one of Floats and Ints is not nil.
type Array struct {
	Shape  []int
	Floats []float32
	Ints   []int64
}

// Batch is rows of samples and what they should be classified as.
type Batch struct {
	Input, Target Array
}

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
	Train, Test Split
	InputShape  []int // of one sample
	Classes     int   // of targets: 0 to Classes-1
	Tokens      bool  // inputs are integers: a language model's
}

// Options of Open.
type Options struct {
	Seed uint64
	// Context is how many positions a sample of a text has; 0 is 128.
	Context int
	// InputShape reshapes samples that have as many elements: an image for dense layers.
	InputShape []int
}
