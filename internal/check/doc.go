// Package check holds the rules of the house that no single room can check:
// who may import whom, and what a pure room may not touch. It has tests only.
package check
