package engine

import "unsafe"

// Number is a type of number that tensors and files can hold.
type Number interface{ float32 | float64 | int64 }

// Bytes returns the memory of numbers as bytes, in this machine's byte order.
func Bytes[T Number](numbers []T) []byte {
	if len(numbers) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&numbers[0])), len(numbers)*int(unsafe.Sizeof(numbers[0])))
}

// Numbers returns the memory of bytes as numbers, in this machine's byte order. An incomplete number at the end is
// left off. The bytes must be aligned for the type.
func Numbers[T Number](bytes []byte) []T {
	var one T
	n := len(bytes) / int(unsafe.Sizeof(one))
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(&bytes[0])), n)
}
