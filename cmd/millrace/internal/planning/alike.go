package planning

import (
	"fmt"
	"strings"
)

// alike groups workers for which the same line is printed, in the order of their first workers.
type alike struct {
	texts   []string
	workers map[string][]int
}

func (a *alike) add(worker int, text string) {
	if a.workers == nil {
		a.workers = map[string][]int{}
	}
	if a.workers[text] == nil {
		a.texts = append(a.texts, text)
	}
	a.workers[text] = append(a.workers[text], worker)
}

// each calls `print` for each line with its workers.
func (a *alike) each(print func(workers []int, text string)) {
	for _, text := range a.texts {
		print(a.workers[text], text)
	}
}

// list formats ascending numbers; three or more consecutive numbers become a range: "0-11, 14, 15".
func list(n []int) string {
	var words []string
	for i := 0; i < len(n); {
		j := i
		for j+1 < len(n) && n[j+1] == n[j]+1 {
			j++
		}
		if j < i+2 {
			j = i
			words = append(words, fmt.Sprint(n[i]))
		} else {
			words = append(words, fmt.Sprintf("%d-%d", n[i], n[j]))
		}
		i = j + 1
	}
	return strings.Join(words, ", ")
}
