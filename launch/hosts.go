package launch

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
)

// hosts is a list of hosts in Slurm's short form: gnode[10,20-23],login1 is six hosts. A name may have several
// brackets. The numbers of the last bracket change fastest.
type hosts struct {
	count int
	items []item
}

// item is one name of a list, possibly with brackets.
type item struct {
	count int
	parts []part
}

// part is a piece of a name: text, or the numbers of a bracket.
type part struct {
	text   string
	ranges []span
	count  int
}

// span is a range of numbers, written with at least the given number of digits.
type span struct{ first, last, digits int }

func (s span) count() int { return s.last - s.first + 1 }

// maxHosts is the largest number of hosts in a list.
const maxHosts = MaxSize

// parseHosts reads a short list of hosts.
func parseHosts(text string) (*hosts, error) {
	list := &hosts{}
	for rest := text; ; {
		it, more, err := parseItem(rest)
		if err != nil {
			return nil, err
		}
		list.items = append(list.items, it)
		if list.count += it.count; list.count > maxHosts {
			return nil, fmt.Errorf("the list has more than %d hosts", maxHosts)
		}
		if more == "" {
			return list, nil
		}
		rest = more[1:]
	}
}

// parseItem reads one name. `more` is the rest of the text, from the comma after the name.
func parseItem(text string) (it item, more string, err error) {
	it.count = 1
	for rest := text; ; {
		end := strings.IndexAny(rest, "[],")
		if end < 0 {
			end = len(rest)
		}
		if end > 0 {
			it.parts = append(it.parts, part{text: rest[:end], count: 1})
		}
		switch rest = rest[end:]; {
		case rest == "" || rest[0] == ',':
			if len(it.parts) == 0 {
				return it, "", fmt.Errorf("a host without a name")
			}
			return it, rest, nil
		case rest[0] == ']':
			return it, "", fmt.Errorf("a ] without [")
		}
		inside, behind, closed := strings.Cut(rest[1:], "]")
		if !closed {
			return it, "", fmt.Errorf("a [ without ]")
		}
		p, err := parseNumbers(inside)
		if err != nil {
			return it, "", err
		}
		high, low := bits.Mul(uint(it.count), uint(p.count))
		if high != 0 || low > maxHosts {
			return it, "", fmt.Errorf("the list has more than %d hosts", maxHosts)
		}
		it.count, it.parts, rest = int(low), append(it.parts, p), behind
	}
}

// parseNumbers reads the inside of brackets: 10,20-23.
func parseNumbers(text string) (part, error) {
	var p part
	for one := range strings.SplitSeq(text, ",") {
		from, to, isRange := strings.Cut(one, "-")
		if !isRange {
			to = from
		}
		first, err1 := parseDigits(from)
		last, err2 := parseDigits(to)
		if err1 != nil || err2 != nil || last < first {
			return p, fmt.Errorf("[%s] is no list of numbers and ranges", clipped(text))
		}
		s := span{first, last, len(from)}
		p.ranges = append(p.ranges, s)
		if p.count += s.count(); p.count > maxHosts {
			return p, fmt.Errorf("the list has more than %d hosts", maxHosts)
		}
	}
	return p, nil
}

// maxDigits keeps numbers far below the largest int.
const maxDigits = 12

// parseDigits returns a number that is written with digits only.
func parseDigits(text string) (int, error) {
	if len(text) == 0 || len(text) > maxDigits || strings.ContainsFunc(text, func(c rune) bool {
		return c < '0' ||
			c > '9'
	}) {
		return 0, fmt.Errorf("%s is no number", clipped(text))
	}
	return strconv.Atoi(text)
}

// name returns the host at position i, which is below count.
func (l *hosts) name(i int) string {
	for _, it := range l.items {
		if i < it.count {
			return it.name(i)
		}
		i -= it.count
	}
	return ""
}

func (it item) name(i int) string {
	name := ""
	for k := len(it.parts) - 1; k >= 0; k-- {
		p := it.parts[k]
		if p.ranges == nil {
			name = p.text + name
			continue
		}
		at := i % p.count
		i /= p.count
		for _, s := range p.ranges {
			if at < s.count() {
				name = fmt.Sprintf("%0*d", s.digits, s.first+at) + name
				break
			}
			at -= s.count()
		}
	}
	return name
}
