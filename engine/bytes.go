package engine

import "unsafe"

// Number is what tensors and files hold.
type Number interface{ float32 | float64 | int64 }

// Bytes views numbers as the bytes they are in this machine's memory.
func Bytes[T Number](numbers []T) []byte {
	if len(numbers) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&numbers[0])), len(numbers)*int(unsafe.Sizeof(numbers[0])))
}

// Numbers views bytes as the numbers they are in this machine's memory. Bytes that are no whole number
// at the end are left off; the first must lie where a number may.
func Numbers[T Number](bytes []byte) []T {
	var one T
	n := len(bytes) / int(unsafe.Sizeof(one))
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(&bytes[0])), n)
}
