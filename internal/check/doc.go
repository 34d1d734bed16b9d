// Package check tests the rules that concern all packages: which package may import which, what a pure package may
// not use, and how large files, functions and types may be. It has only tests.
package check
