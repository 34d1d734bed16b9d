// Package check tests the rules that concern all packages. Examples are imports, what a pure package may not use, and
// the sizes of files, functions and types. It has only tests.
package check
