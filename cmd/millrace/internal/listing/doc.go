// Package listing is the verbs that list what there is: models, kinds of layers, clusters, schedules.
//
// In: a verb's flags and arguments. Out: tables for a terminal, or values as JSON, made of the registries of the rooms
// model, cluster and schedule/family alone, so that what is listed is what the other verbs take. Refused: names that
// are in no registry, with those that are, and files that their rooms refuse.
// Its driver adds the verbs to the program.
package listing

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/millrace-ml/millrace/internal/terminal"
)

// facts prints names and values below one another.
func facts(w io.Writer, s terminal.Screen, rows [][2]string) error {
	widest := 0
	for _, r := range rows {
		widest = max(widest, len(r[0]))
	}
	var b strings.Builder
	for _, r := range rows {
		if r[1] != "" {
			first := fmt.Sprintf("%-*s  ", widest, r[0])
			b.WriteString(s.Wrap(first, strings.Repeat(" ", len(first)), r[1]))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// scaled is a number with three digits and a prefix of thousands: "1.23 M".
func scaled(v float64) string {
	prefixes := []string{"", " k", " M", " G", " T", " P", " E"}
	i := 0
	for ; v >= 999.5 && i < len(prefixes)-1; i++ {
		v /= 1000
	}
	if i == 0 {
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return terminal.Number(v, 3) + prefixes[i]
}

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
