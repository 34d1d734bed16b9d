package cluster

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

type unit struct {
	suffix string
	factor float64
}

var (
	byteUnits = []unit{{"B", 1}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"KiB", 1 << 10},
		{"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}}
	rateUnits = []unit{{"B/s", 1}, {"KB/s", 1e3}, {"MB/s", 1e6}, {"GB/s", 1e9}, {"TB/s", 1e12}, {"GiB/s", 1 << 30},
		{"bps", 0.125}, {"Kbps", 125}, {"Mbps", 125e3}, {"Gbps", 125e6}, {"Tbps", 125e9}}
	timeUnits  = []unit{{"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}}
	clockUnits = []unit{{"Hz", 1}, {"kHz", 1e3}, {"MHz", 1e6}, {"GHz", 1e9}}
	speedUnits = []unit{{"FLOPS", 1}, {"KFLOPS", 1e3}, {"MFLOPS", 1e6}, {"GFLOPS", 1e9}, {"TFLOPS", 1e12},
		{"PFLOPS", 1e15}}
)

// quantity reads text such as "16GiB": a decimal number and a unit, with or without a space between them.
func quantity(text, what string, units []unit) (float64, error) {
	cut := strings.IndexFunc(text, func(r rune) bool { return (r < '0' || r > '9') && r != '.' })
	var names []string
	for _, u := range units {
		names = append(names, u.suffix)
	}
	if strings.HasPrefix(text, "-") {
		return 0, fmt.Errorf("%s is %s; it cannot be negative", what, text)
	}
	if cut <= 0 {
		return 0, fmt.Errorf("%s %q has no unit or no number; write a number and one of %s", what, text,
			strings.Join(names, " "))
	}
	n, err := strconv.ParseFloat(text[:cut], 64)
	suffix := strings.Replace(strings.TrimSpace(text[cut:]), "bit/s", "bps", 1) // Gbit/s is Gbps
	i := slices.IndexFunc(units, func(u unit) bool { return u.suffix == suffix })
	if err == nil && i < 0 {
		for _, rest := range []string{"/s", "ps"} { // 300GB suggests 300GB/s; 100Gb suggests 100Gbps
			if slices.Contains(names, suffix+rest) {
				return 0, fmt.Errorf("%s %q is a size, and not a size per second; did you mean %s%s?", what, text, text[:cut],
					suffix+rest)
			}
		}
		return 0, fmt.Errorf("%s %q has no unit that is known here, %q; units are %s", what, text, suffix,
			strings.Join(names, " "))
	}
	if err != nil {
		return 0, fmt.Errorf("%s %q is not a number with a unit; units are %s", what, text, strings.Join(names, " "))
	}
	v := n * units[i].factor
	if units[i].factor < 1 { // 5us must be the float64 nearest to 5e-06, and 5 * 1e-06 is not
		v = n / math.Round(1/units[i].factor)
	}
	if v > mostQuantity || v > 0 && v < leastQuantity {
		return 0, fmt.Errorf("%s is %.40s; no hardware has that, %g to %g of its first unit (%s) are read", what, text,
			leastQuantity, mostQuantity, names[0])
	}
	return v, nil
}

// These are the limits of a quantity above 0, in its base unit. They keep all durations that are computed from several
// quantities finite.
const leastQuantity, mostQuantity = 1e-12, 1e24

// ParseBytes reads a size such as "16GiB".
func ParseBytes(text string) (int64, error) {
	n, err := byteCount(text, "size")
	if err != nil {
		return 0, fmt.Errorf("cluster: %w", err)
	}
	return n, nil
}

// byteCount reads a size. `what` is the size's name in errors.
func byteCount(text, what string) (int64, error) {
	v, err := quantity(text, what, byteUnits)
	if err == nil && v >= 1<<62 {
		err = fmt.Errorf("%s %q is over 4 EiB", what, text)
	}
	if err != nil {
		return 0, err
	}
	return int64(v), nil
}

// memory reads the memory of a device. It refuses 0, which would mean unlimited.
func memory(text string) (int64, error) {
	n, err := byteCount(text, "memory")
	if err == nil && n == 0 {
		err = fmt.Errorf("memory is %s; it must be over 0, or left out where it is not limited", text)
	}
	return n, err
}

// positive reads a quantity that must be over 0.
func positive(text, what string, units []unit) (float64, error) {
	v, err := quantity(text, what, units)
	if err == nil && v <= 0 {
		err = fmt.Errorf("%s is %s; it must be over 0", what, text)
	}
	return v, err
}
