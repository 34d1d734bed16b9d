package cluster

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace-ml/millrace/internal/document"
)

// Write writes the YAML form to a file, either the whole file or nothing.
func (c *Cluster) Write(path string) error { return document.WriteText(path, c.Text()) }

// Text returns the YAML form, from which Parse reads an equal Cluster, except that CoreGroup is not written.
func (c *Cluster) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "name: %s\ndevice_types:\n", word(c.Name))
	for _, name := range slices.Sorted(maps.Keys(c.DeviceTypes)) {
		fmt.Fprintf(&b, "  %s: {%s}\n", word(name), c.DeviceTypes[name].text())
	}
	alike := c.Nodes == nil && !slices.ContainsFunc(c.Devices, func(d string) bool { return d != c.Devices[0] })
	if alike {
		fmt.Fprintf(&b, "device: %s\n", word(c.Devices[0]))
	}
	if c.Cores > 0 {
		fmt.Fprintf(&b, "cores: %d\n", c.Cores)
	}
	if !alike {
		b.WriteString("nodes:\n")
		c.writeNodes(&b)
	}
	if len(c.PerHost) > 0 {
		fmt.Fprintf(&b, "devices_per_host: [%s]\n", strings.Trim(strings.ReplaceAll(fmt.Sprint(c.PerHost), " ", ", "), "[]"))
	}
	b.WriteString("levels:\n")
	for _, l := range c.Levels {
		fmt.Fprintf(&b, "  - {%s}\n", l.text())
	}
	return b.String()
}

// writeNodes writes consecutive equal nodes as one entry.
func (c *Cluster) writeNodes(b *strings.Builder) {
	size := c.Levels[0].Size
	var texts []string
	for i := 0; i < len(c.Devices); i += size {
		var f fields
		on := c.Devices[i : i+size]
		if f.say("device", word(on[0])); slices.ContainsFunc(on, func(d string) bool { return d != on[0] }) {
			var all []string
			for _, d := range on {
				all = append(all, word(d))
			}
			f = fields{"devices: [" + strings.Join(all, ", ") + "]"}
		}
		if c.Nodes != nil {
			n := c.Nodes[i/size]
			f.quantity("memory", float64(n.MemoryBytes), byteUnits)
			f.quantity("bandwidth", n.BandwidthBytesPerSecond, rateUnits)
			f.quantity("latency", n.LatencyS, timeUnits)
			f.number("cores", float64(n.Cores))
		}
		texts = append(texts, f.String())
	}
	for at := 0; at < len(texts); {
		end := at
		for end < len(texts) && texts[end] == texts[at] {
			end++
		}
		count := ""
		if end > at+1 {
			count = fmt.Sprintf("count: %d, ", end-at)
		}
		fmt.Fprintf(b, "  - {%s%s}\n", count, texts[at])
		at = end
	}
}

func (t DeviceType) text() string {
	var f fields
	memory := t.MemoryBytes
	if t.Group != nil {
		memory /= int64(t.Group.Size)
	}
	f.quantity("memory", float64(memory), byteUnits)
	if t.FPGA == nil && t.PeakFLOPS != t.Peaks["f32"] {
		f.quantity("peak", t.PeakFLOPS, speedUnits)
	}
	var peaks fields
	for _, name := range slices.Sorted(maps.Keys(t.Peaks)) {
		peaks.quantity(name, t.Peaks[name], speedUnits)
	}
	if len(peaks) > 0 {
		f.say("peaks", "{"+peaks.String()+"}")
	}
	f.quantity("memory_bandwidth", t.MemoryBandwidthBytesPerSecond, rateUnits)
	if len(t.Efficiency) > 0 {
		var of fields
		for _, kind := range slices.Sorted(maps.Keys(t.Efficiency)) {
			of.say(word(kind), plain(t.Efficiency[kind]))
		}
		f.say("efficiency", "{"+of.String()+"}")
	}
	if t.Kernels != nil {
		f.say("kernels", "{"+t.Kernels.text()+"}")
	}
	if g := t.Group; g != nil {
		f.number("tensor", float64(g.Size))
		var link fields
		link.quantity("bandwidth", g.BandwidthBytesPerSecond, rateUnits)
		link.quantity("latency", g.LatencyS, timeUnits)
		if len(g.Protocols) > 0 {
			link.say("protocols", "{"+protocolsText(g.Protocols)+"}")
		}
		if f.say("tensor_link", "{"+link.String()+"}"); g.SequenceParallel {
			f.say("sequence_parallel", "true")
		}
	}
	price := t.PricePerHour
	if t.Group != nil {
		price /= float64(t.Group.Size)
	}
	f.number("price_per_hour", price)
	if t.FPGA != nil {
		f.say("fpga", "{"+t.FPGA.text()+"}")
	}
	return f.String()
}

func (p *FPGA) text() string {
	var f fields
	f.number("dsp_slices", float64(p.DSPSlices))
	f.quantity("clock", p.ClockHz, clockUnits)
	f.number("flops_per_slice", p.FLOPsPerSlice)
	f.quantity("on_chip", float64(p.OnChipBytes), byteUnits)
	var all []string
	for _, t := range p.Transceivers {
		all = append(all, fmt.Sprintf("{name: %s, lanes: %d, rate: %s}", word(t.Name), t.Lanes,
			inUnits(t.BytesPerSecond, rateUnits)))
	}
	if len(all) > 0 {
		f.say("transceivers", "["+strings.Join(all, ", ")+"]")
	}
	return f.String()
}

func (l Level) text() string {
	var f fields
	f.say("name", word(l.Name))
	f.say("size", strconv.Itoa(l.Size))
	f.quantity("bandwidth", l.BandwidthBytesPerSecond, rateUnits)
	f.quantity("latency", l.LatencyS, timeUnits)
	f.quantity("collective_bandwidth", l.CollectiveBandwidthBytesPerSecond, rateUnits)
	f.quantity("half_size", l.HalfBytes, byteUnits)
	f.number("rails", float64(l.Rails))
	if !l.FullDuplex {
		f.say("duplex", "half")
	}
	for _, own := range []struct {
		key  string
		said bool
	}{{"occupies_device", l.OccupiesDevice}, {"shared", l.Shared}, {"uplinks", l.Uplinks}, {"one_memory", l.OneMemory},
		{"contention", l.Contention}} {
		if own.said {
			f.say(own.key, "true")
		}
	}
	if len(l.Protocols) > 0 {
		f.say("protocols", "{"+protocolsText(l.Protocols)+"}")
	}
	return f.String()
}

// fields holds the entries to write between braces.
type fields []string

func (f fields) String() string { return strings.Join(f, ", ") }

func (f *fields) say(key, value string) { *f = append(*f, key+": "+value) }

// number adds a number, unless it is 0.
func (f *fields) number(key string, v float64) {
	if v != 0 {
		f.say(key, plain(v))
	}
}

// quantity adds a quantity, unless it is 0.
func (f *fields) quantity(key string, v float64, units []unit) {
	if v != 0 {
		f.say(key, inUnits(v, units))
	}
}

func plain(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

// inUnits writes a quantity in the unit that gives the shortest text. It considers only units in which the number is
// between 1 and 1,000 and the text is read as exactly the same quantity. If there is none, it takes the first unit.
func inUnits(v float64, units []unit) string {
	best := ""
	for _, u := range units {
		n := v / u.factor
		for _, said := range []float64{rounded(n), n} {
			text := plain(said) + u.suffix
			if again, err := quantity(text, "", units); err != nil || again != v || said < 1 || said >= 1000 {
				continue
			}
			if best == "" || len(text) < len(best) {
				best = text
			}
		}
	}
	return cmp.Or(best, plain(v)+units[0].suffix)
}

var simple = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_./-]*$`)

// word returns a name in a form that YAML reads as a string.
func word(name string) string {
	switch strings.ToLower(name) {
	case "true", "false", "yes", "no", "on", "off", "null", "y", "n":
		return strconv.Quote(name)
	}
	if simple.MatchString(name) {
		return name
	}
	return strconv.Quote(name)
}

// short writes a quantity with three digits, in the largest unit that is not larger than the quantity.
func short(v float64, units []unit) string {
	best := units[0]
	for _, u := range units {
		if larger := u.factor > best.factor; v >= u.factor && larger || v < best.factor && !larger {
			best = u
		}
	}
	return plain(rounded(v/best.factor)) + best.suffix
}

// rounded returns the number rounded to three digits.
func rounded(v float64) float64 {
	n, err := strconv.ParseFloat(strconv.FormatFloat(v, 'e', 2, 64), 64)
	if err != nil {
		return v
	}
	return n
}

// Rounded returns the link with its numbers rounded to three digits, as short writes them.
func (l Link) Rounded() Link {
	read := func(v float64, units []unit) float64 {
		n, err := quantity(short(v, units), "", units)
		if v <= 0 || err != nil {
			return v
		}
		return n
	}
	return Link{LatencyS: read(l.LatencyS, timeUnits), BandwidthBytesPerSecond: read(l.BandwidthBytesPerSecond,
		rateUnits[:5]), CollectiveBytesPerSecond: read(l.CollectiveBytesPerSecond, rateUnits[:5])}
}
