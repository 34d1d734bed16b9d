package model

// Values are the elements of a tensor, little-endian, row by row.
type Values struct {
	DType string // F32, F64, I64 or BOOL
	Shape []int64
	Data  []byte
}

// Weights are first values of parameters and buffers, in files.
type Weights interface {
	// Tensor reads the values of a parameter by its full name into memory of the caller's own. It opens what it reads, and
	// any goroutine may ask.
	Tensor(name string) (Values, error)
}
