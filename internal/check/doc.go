// Package check holds the rules of the house that no single room can check:
// who may import whom, what a pure room may not touch, and how large files,
// functions and types may be. It has tests only.
package check
