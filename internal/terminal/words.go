package terminal

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
)

// Count returns a number with a noun: "1 worker", "3 micro-batches", "12,000 samples".
func Count(n int, one string) string { return Whole(n) + " " + Plural(n, one) }

// Whole returns a whole number with separated thousands: "12,000".
func Whole[N int | int64](n N) string { return Number(float64(n), 0) }

// Plural returns the form of a regular noun for a number: "worker", "micro-batches", "entries".
func Plural(n int, one string) string {
	switch {
	case n == 1:
		return one
	case strings.HasSuffix(one, "s"), strings.HasSuffix(one, "x"), strings.HasSuffix(one, "ch"),
		strings.HasSuffix(one, "sh"):
		return one + "es"
	case strings.HasSuffix(one, "y") && !strings.ContainsAny(one[max(0, len(one)-2):len(one)-1], "aeiou"):
		return one[:len(one)-1] + "ies"
	}
	return one + "s"
}

// ones matches a count of one before a plural: "1 workers", but not "11 workers", "2.1 ms" or "step-1 layers".
var ones = regexp.MustCompile(`(^|[ (])1 (workers|stages|layers|devices|micro-batches|minibatches|samples|steps|bytes|` +
	`pipelines|hosts|cores|rows|processes|updates|replicas|threads|plans|settings|runs|chains|blocks|heads|groups)\b`)

// Singular corrects counts of one in a text that was made without this package, such as an error: "1 worker".
func Singular(text string) string {
	return ones.ReplaceAllStringFunc(text, func(found string) string {
		for _, ending := range []string{"ches", "sses"} {
			if strings.HasSuffix(found, ending) {
				return strings.TrimSuffix(found, "es")
			}
		}
		return strings.TrimSuffix(found, "s")
	})
}

// And lists whole numbers in a sentence: "0", "0 and 1", "0, 1 and 4".
func And(all []int) string {
	var b strings.Builder
	for i, n := range all {
		switch {
		case i == 0:
		case i == len(all)-1:
			b.WriteString(" and ")
		default:
			b.WriteString(", ")
		}
		b.WriteString(strconv.Itoa(n))
	}
	return b.String()
}

// Number returns a number with this many significant digits, including trailing zeros, and separated thousands:
// "1.00", "241.6", "112,300". 0 digits mean the nearest whole number.
func Number(v float64, digits int) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return strconv.FormatFloat(v, 'g', -1, 64)
	}
	behind := 0
	if digits > 0 && v != 0 {
		e, _ := strconv.ParseFloat(strconv.FormatFloat(v, 'e', digits-1, 64), 64)
		behind = digits - 1 - int(math.Floor(math.Log10(math.Abs(e))+1e-12))
		v = e
	}
	text := strconv.FormatFloat(v, 'f', max(0, behind), 64)
	sign := ""
	if text[0] == '-' {
		sign, text = "-", text[1:]
	}
	whole, part, dot := strings.Cut(text, ".")
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if dot {
		whole += "." + part
	}
	return sign + whole
}

// Loss returns a loss with four decimals: "0.4213". Very small and very large losses have an exponent: "4.54e-7".
func Loss(v float64) string {
	if v == 0 {
		v = 0 // -0 becomes 0
	}
	if abs := math.Abs(v); abs < 1e5 && (v == 0 || abs >= 1e-4) || math.IsNaN(v) || math.IsInf(v, 0) {
		return strconv.FormatFloat(v, 'f', 4, 64)
	}
	digits, power, _ := strings.Cut(strconv.FormatFloat(v, 'e', 2, 64), "e")
	return digits + "e" + power[:1] + strings.TrimLeft(power[1:], "0")
}

// Scaled returns a number with three digits and a prefix of thousands: "1.23 M". A number below 999.5 has no prefix and
// is not rounded.
func Scaled(v float64) string {
	prefixes := []string{"", " k", " M", " G", " T", " P", " E"}
	i := 0
	for ; v >= 999.5 && i < len(prefixes)-1; i++ {
		v /= 1000
	}
	if i == 0 {
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return Number(v, 3) + prefixes[i]
}

// Duration returns a time, given in seconds, in a suitable unit: "450 µs", "12.3 ms", "1.00 s", "2m14s", "1h05m",
// "2d03h".
func Duration(s float64) string {
	switch abs := math.Abs(s); {
	case abs == 0:
		return "0 s"
	case math.IsNaN(s), math.IsInf(s, 0):
		return strconv.FormatFloat(s, 'g', -1, 64) + " s"
	case abs < 999.5e-9:
		return Number(1e9*s, 3) + " ns"
	case abs < 999.5e-6:
		return Number(1e6*s, 3) + " µs"
	case abs < 0.9995:
		return Number(1e3*s, 3) + " ms"
	case abs < 99.95:
		return Number(s, 3) + " s"
	case abs < 3599.5:
		n := int(math.Round(s))
		return fmt.Sprintf("%dm%02ds", n/60, max(n%60, -n%60))
	case abs < 48*3600-30:
		n := int(math.Round(s / 60))
		return fmt.Sprintf("%dh%02dm", n/60, max(n%60, -n%60))
	case abs < 1e12:
		n := int(math.Round(s / 3600))
		return fmt.Sprintf("%dd%02dh", n/24, max(n%24, -n%24))
	}
	return Number(s/86400, 3) + " days"
}

// Bytes returns an amount of memory in binary units with three digits: "512 B", "16.0 GiB", "1.43 GiB".
func Bytes[N int | int64 | uint64 | float64](n N) string {
	v, units, i := float64(n), []string{"B", "KiB", "MiB", "GiB", "TiB"}, 0
	for ; math.Abs(v) >= 999.5 && i < len(units)-1; i++ {
		v /= 1024
	}
	if i == 0 || math.Abs(v) >= 999.5 {
		return Number(v, 0) + " " + units[i]
	}
	return Number(v, 3) + " " + units[i]
}
