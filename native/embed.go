// Package native holds the sources of the libtorch shim, so that a millrace binary
// can compile them for the libtorch it finds (millrace doctor --build).
//
// In: nothing. Out: the files of this folder as they were when the binary was built.
// The package has no C code of Go's own and never needs a C compiler to build.
package native

import "embed"

// Sources are build.sh and, under shim/, millrace.h and the .cpp files it compiles.
// (They cannot lie beside this file: Go takes C++ in a package for cgo.)
//
//go:embed build.sh shim/*.h shim/*.cpp
var Sources embed.FS
