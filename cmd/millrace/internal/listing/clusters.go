package listing

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/cmd/internal/cli"
	"github.com/millrace-ml/millrace/cmd/internal/words"
	"github.com/millrace-ml/millrace/internal/names"
	"github.com/millrace-ml/millrace/internal/terminal"
)

// ClusterCommand returns the verb for clusters.
func ClusterCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "cluster", Short: "List preset clusters, and show one's devices, memory and links",
		Long: `cluster lists the presets that --cluster takes, and shows the devices, memory and links of a preset or a file.
docs/clusters.md describes the files.`,
		Example: "  millrace cluster ls\n  millrace cluster show dapple-a:4x8",
		Args:    cobra.NoArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(listClusters(), showCluster())
	return c
}

// deviceType is a device type as it is printed in JSON.
type deviceType struct {
	Name        string  `json:"name"`
	Count       int     `json:"count"`
	MemoryBytes int64   `json:"memory_bytes,omitempty"`
	PeakFLOPS   float64 `json:"peak_flops,omitempty"`
	// Peaks holds the peak of each precision that the cluster gives. Its keys are values of --precision.
	Peaks                         map[string]float64 `json:"peaks,omitempty"`
	MemoryBandwidthBytesPerSecond float64            `json:"memory_bandwidth_bytes_per_second,omitempty"`
	Board                         bool               `json:"board,omitempty"` // whether the device is an FPGA
	PricePerHour                  float64            `json:"price_per_hour,omitempty"`
}

type level struct {
	Name                              string  `json:"name"`
	Size                              int     `json:"size"`
	BandwidthBytesPerSecond           float64 `json:"bandwidth_bytes_per_second"`
	LatencyS                          float64 `json:"latency_s"`
	CollectiveBandwidthBytesPerSecond float64 `json:"collective_bandwidth_bytes_per_second,omitempty"`
	HalfSizeBytes                     float64 `json:"half_size_bytes,omitempty"`
	Contention                        bool    `json:"contention,omitempty"`

	Protocols []protocol `json:"protocols,omitempty"`
	How       string     `json:"how"`
}

// protocol is one of the protocols that a level's collectives choose from.
type protocol struct {
	Name         string  `json:"name"`
	StartS       float64 `json:"start_s"`
	LatencyS     float64 `json:"latency_s"`
	TreeLatencyS float64 `json:"tree_latency_s,omitempty"`
	Share        float64 `json:"share"`
}

type listedCluster struct {
	Name    string       `json:"name"`
	Devices int          `json:"devices"`
	Summary string       `json:"summary"`
	Of      string       `json:"of,omitempty"` // origin of a preset: cluster.Origins
	Types   []deviceType `json:"device_types"`
	Levels  []level      `json:"levels"` // innermost first
}

func listedOf(c *cluster.Cluster) listedCluster {
	out := listedCluster{Name: c.Name, Devices: len(c.Devices), Summary: c.Summary()}
	for _, name := range c.Types() {
		of := c.DeviceTypes[name]
		t := deviceType{Name: name, MemoryBytes: of.MemoryBytes, PeakFLOPS: of.PeakFLOPS, Peaks: of.Peaks,
			MemoryBandwidthBytesPerSecond: of.MemoryBandwidthBytesPerSecond, Board: of.FPGA != nil,
			PricePerHour: of.PricePerHour}
		for _, d := range c.Devices {
			if d == name {
				t.Count++
			}
		}
		out.Types = append(out.Types, t)
	}
	for _, l := range c.Levels {
		one := level{Name: l.Name, Size: l.Size, BandwidthBytesPerSecond: l.BandwidthBytesPerSecond, LatencyS: l.LatencyS,
			CollectiveBandwidthBytesPerSecond: l.CollectiveBandwidthBytesPerSecond, HalfSizeBytes: l.HalfBytes,
			Contention: l.Contention, How: how(l)}
		for _, p := range l.Protocols {
			one.Protocols = append(one.Protocols, protocol(p))
		}
		out.Levels = append(out.Levels, one)
	}
	return out
}

// how describes in words the links of a level and which devices share them.
func how(l cluster.Level) string {
	text := "a link for each pair"
	switch {
	case l.OneMemory:
		text = "one memory"
	case l.Shared:
		text = "one link for all"
	case l.Uplinks || l.Rails == 1:
		text = "one link for each member"
	case l.Rails > 1:
		text = fmt.Sprintf("%d links for each member", l.Rails)
	}
	if !l.FullDuplex {
		text += ", half duplex"
	}
	if l.OccupiesDevice {
		text += ", devices wait for transfers"
	}
	if l.Contention {
		text += ", contention at ports"
	}
	if l.HalfBytes > 0 {
		text += fmt.Sprintf(", half of the bandwidth at %s", terminal.Bytes(int64(l.HalfBytes)))
	}
	return text
}

func listClusters() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "ls", Short: "List the preset clusters", Args: cobra.NoArgs,
		Long: `ls lists the clusters that --cluster takes by name. A colon and a size, the outermost level first, change the
number of devices: dapple-a:4x8 is four servers with eight devices each.`,
		Example: "  millrace cluster ls\n  millrace cluster ls --json",
		RunE: func(c *cobra.Command, _ []string) error {
			var all []listedCluster
			for _, name := range cluster.Presets() {
				of, err := cluster.Preset(name)
				if err != nil {
					return err
				}
				one := listedOf(of)
				one.Of = cluster.Origin(name)
				all = append(all, one)
			}
			if asJSON {
				return cli.WriteJSON(c.OutOrStdout(), all)
			}
			s := terminal.Of(c.OutOrStdout())
			for _, of := range cluster.Origins {
				fmt.Fprintln(c.OutOrStdout(), s.Paint(terminal.Bold, "of "+of))
				if err := clustersOf(all, of).Write(c.OutOrStdout(), s); err != nil {
					return err
				}
				fmt.Fprintln(c.OutOrStdout())
			}
			_, err := io.WriteString(c.OutOrStdout(), s.Wrap("", "", cli.Called()+" cluster show CLUSTER says more. Files "+
				"are described in docs/clusters.md; doctor --links writes one of your hosts."))
			return err
		},
	}
	cli.JSON(c, &asJSON)
	return c
}

// clustersOf makes a table with one row for each preset of an origin.
func clustersOf(all []listedCluster, origin string) *terminal.Table {
	t := &terminal.Table{Columns: []terminal.Column{{Heading: "cluster"}, {Heading: "devices", Number: true},
		{Heading: "what they are", Wraps: true}, {Heading: "slowest link", Number: true, Spare: 1}}}
	for _, of := range all {
		if of.Of != origin {
			continue
		}
		slowest := slices.MinFunc(of.Levels, func(a, b level) int {
			return cmp.Compare(a.BandwidthBytesPerSecond, b.BandwidthBytesPerSecond)
		})
		t.Add(of.Name, fmt.Sprint(of.Devices), of.Summary, rate(slowest.BandwidthBytesPerSecond))
	}
	return t
}

// rate formats a bandwidth.
func rate(bytesPerSecond float64) string { return terminal.Scaled(bytesPerSecond) + "B/s" }

func showCluster() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "show CLUSTER", Short: "Show a cluster's devices, memory and links",
		Example:           "  millrace cluster show dapple-a:4x8\n  millrace cluster show examples/two-nodes.yaml --json",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: words.Each(words.Clusters),
		RunE: func(c *cobra.Command, args []string) error {
			of, err := cluster.Read(args[0])
			if err != nil {
				return cli.BadInput(err)
			}
			listed := listedOf(of)
			if asJSON {
				return cli.WriteJSON(c.OutOrStdout(), listed)
			}
			return printCluster(c.OutOrStdout(), of, listed)
		},
	}
	cli.JSON(c, &asJSON)
	return c
}

func printCluster(w io.Writer, c *cluster.Cluster, of listedCluster) error {
	s := terminal.Of(w)
	cores := ""
	if c.Cores > 0 {
		cores = fmt.Sprintf("%d, which the workers of a host share", c.Cores)
	}
	price := 0.0
	for _, d := range of.Types {
		price += d.PricePerHour * float64(d.Count)
	}
	costs := ""
	if price > 0 {
		costs = fmt.Sprintf("%.2f an hour, by price_per_hour of its devices", price)
	}
	if _, err := io.WriteString(w, s.Facts([][2]string{{"cluster", names.Shown(of.Name)},
		{"devices", fmt.Sprint(of.Devices)}, {"cores", cores}, {"price", costs}})); err != nil {
		return err
	}
	t := &terminal.Table{Columns: []terminal.Column{{Heading: "device"}, {Heading: "number", Number: true},
		{Heading: "memory", Number: true}, {Heading: "peak", Number: true}, {Heading: "in 16 bits", Number: true},
		{Heading: "memory bandwidth", Number: true}}}
	for _, d := range of.Types {
		peak, sixteen, bandwidth := "", "", ""
		if p := max(d.Peaks["f16"], d.Peaks["bf16"]); p > 0 {
			sixteen = terminal.Scaled(p) + "FLOPS"
		}
		if d.PeakFLOPS > 0 {
			peak = terminal.Scaled(d.PeakFLOPS) + "FLOPS"
		}
		if d.MemoryBandwidthBytesPerSecond > 0 {
			bandwidth = rate(d.MemoryBandwidthBytesPerSecond)
		}
		t.Add(names.Shown(d.Name), fmt.Sprint(d.Count), limit(d.MemoryBytes), peak, sixteen, bandwidth)
	}
	fmt.Fprintln(w)
	if err := t.Write(w, s); err != nil {
		return err
	}
	t = &terminal.Table{Columns: []terminal.Column{{Heading: "level"}, {Heading: "members", Number: true},
		{Heading: "bandwidth", Number: true}, {Heading: "latency", Number: true},
		{Heading: "all-reduce", Number: true}, {Heading: "links", Wraps: true}}}
	for _, l := range slices.Backward(of.Levels) {
		sum := ""
		if l.CollectiveBandwidthBytesPerSecond > 0 {
			sum = rate(l.CollectiveBandwidthBytesPerSecond)
		}
		t.Add(names.Shown(l.Name), fmt.Sprint(l.Size), rate(l.BandwidthBytesPerSecond), terminal.Duration(l.LatencyS), sum,
			l.How)
	}
	fmt.Fprintln(w)
	if err := t.Write(w, s); err != nil {
		return err
	}
	if err := printProtocols(w, s, of.Levels); err != nil || !different(c) {
		return err
	}
	fmt.Fprintln(w)
	return groups(c).Write(w, s)
}

// groups returns a table of the groups of the innermost level. Neighbours of one type share a row.
func groups(c *cluster.Cluster) *terminal.Table {
	t := &terminal.Table{Columns: []terminal.Column{{Heading: "group"}, {Heading: "devices"}, {Heading: "memory of each"},
		{Heading: "bandwidth inside", Number: true}}}
	size := c.Levels[0].Size
	for i := 0; i*size < len(c.Devices); i++ {
		bandwidth := c.Levels[0].BandwidthBytesPerSecond
		if c.Nodes != nil && c.Nodes[i].BandwidthBytesPerSecond > 0 {
			bandwidth = c.Nodes[i].BandwidthBytesPerSecond
		}
		name, inside := fmt.Sprintf("%s %d", names.Shown(c.Levels[0].Name), i), rate(bandwidth)
		for first, end := i*size, (i+1)*size; first < end; {
			last := first
			for last+1 < end && c.Devices[last+1] == c.Devices[first] && c.MemoryBytes(last+1) == c.MemoryBytes(first) {
				last++
			}
			which := fmt.Sprint(first)
			if last > first {
				which = fmt.Sprintf("%d to %d", first, last)
			}
			t.Add(name, which+": "+names.Shown(c.Devices[first]), limit(c.MemoryBytes(first)), inside)
			first, name, inside = last+1, "", ""
		}
	}
	return t
}

// printProtocols prints the protocols that collectives choose from, if levels have them.
func printProtocols(w io.Writer, s terminal.Screen, levels []level) error {
	t := &terminal.Table{Columns: []terminal.Column{{Heading: "protocols of"}, {Heading: "name"},
		{Heading: "start", Number: true}, {Heading: "latency", Number: true}, {Heading: "in a tree", Number: true},
		{Heading: "bandwidth", Number: true}}}
	some := false
	for _, l := range slices.Backward(levels) {
		for _, p := range l.Protocols {
			some = true
			t.Add(names.Shown(l.Name), names.Shown(p.Name), terminal.Duration(p.StartS), terminal.Duration(p.LatencyS),
				terminal.Duration(cmp.Or(p.TreeLatencyS, p.LatencyS)), fmt.Sprintf("%.3g %%", 100*p.Share))
		}
	}
	if !some {
		return nil
	}
	fmt.Fprintln(w)
	return t.Write(w, s)
}

// limit formats a device's memory.
func limit(bytes int64) string {
	if bytes == 0 {
		return "not limited"
	}
	return terminal.Bytes(bytes)
}

// different reports whether groups of the innermost level differ.
func different(c *cluster.Cluster) bool { return c.Nodes != nil || len(c.Types()) > 1 }
