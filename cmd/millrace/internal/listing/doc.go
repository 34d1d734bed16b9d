// Package listing has the verbs that list models, kinds of layers, clusters, schedules and data sets.
//
// In: a verb's flags and arguments. Out: tables for a terminal, or values as JSON. They are made only from the
// registries of model, cluster, schedule/family and data, so that the other verbs accept everything that is listed.
// Refused: names that are in no registry, with the known names, and files that their packages refuse. The caller adds
// the verbs to the program.
package listing

import (
	"strconv"
	"strings"
)

// shape formats the sizes of a tensor: "3 x 32 x 32".
func shape(sizes []int) string {
	if len(sizes) == 0 {
		return "one"
	}
	words := make([]string, len(sizes))
	for i, n := range sizes {
		words[i] = strconv.Itoa(n)
	}
	return strings.Join(words, " x ")
}
