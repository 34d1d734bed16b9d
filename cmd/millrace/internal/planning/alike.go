package planning

import (
	"fmt"
	"strings"
)

// alike gathers workers of which there is the same to say, in the order in which they come.
type alike struct {
	texts   []string
	workers map[string][]int
}

// mostRows is how many rows a list of workers has.
const mostRows = 16

func (a *alike) add(worker int, text string) {
	if a.workers == nil {
		a.workers = map[string][]int{}
	}
	if a.workers[text] == nil {
		a.texts = append(a.texts, text)
	}
	a.workers[text] = append(a.workers[text], worker)
}

// each calls print for every text and its workers, the first mostRows; of the rest it says
// how many there are.
func (a *alike) each(print func(workers, text string)) {
	for i, text := range a.texts {
		if i < mostRows {
			print(numbers(a.workers[text]), text)
			continue
		}
		rest := 0
		for _, text := range a.texts[i:] {
			rest += len(a.workers[text])
		}
		print(fmt.Sprintf("... and %d more", rest), "")
		return
	}
}

// numbers writes ascending numbers, three and more in a row as a range: "0-11 14 15".
func numbers(n []int) string {
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
	return strings.Join(words, " ")
}

func countMicros(n int) string {
	if n == 1 {
		return "1 micro-batch"
	}
	return fmt.Sprintf("%d micro-batches", n)
}
