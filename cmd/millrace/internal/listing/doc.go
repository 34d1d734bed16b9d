// Package listing is the verbs that list what there is: models, kinds of layers, clusters, schedules.
//
// In: a verb's flags and arguments. Out: tables for a terminal, or values as JSON, made of the registries of the rooms
// model, cluster and schedule/family alone, so that what is listed is what the other verbs take. Refused: names that
// are in no registry, with those that are, and files that their rooms refuse.
// Its driver adds the verbs to the program.
package listing

import (
	"strconv"
	"strings"
)

// shape is the sizes of a tensor: "3 x 32 x 32".
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
