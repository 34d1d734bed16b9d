package cluster

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"

	"github.com/millrace-ml/millrace/internal/document"
	"github.com/millrace-ml/millrace/internal/names"
	"github.com/millrace-ml/millrace/internal/strictyaml"
)

// file is the YAML form of a Cluster. A JSON file can be read too, since JSON is YAML.
type file struct {
	Name        string                    `yaml:"name"`
	DeviceTypes map[string]fileDeviceType `yaml:"device_types"`
	Device      string                    `yaml:"device"`
	Nodes       []fileNode                `yaml:"nodes"`
	PerHost     []int                     `yaml:"devices_per_host"`
	Cores       int                       `yaml:"cores"`
	Levels      []fileLevel               `yaml:"levels"`
}

type fileDeviceType struct {
	Memory          string             `yaml:"memory"`
	Peak            string             `yaml:"peak"`
	MemoryBandwidth string             `yaml:"memory_bandwidth"`
	Efficiency      map[string]float64 `yaml:"efficiency"`
	FPGA            *fileFPGA          `yaml:"fpga"`
	// Like is the name of a device type preset. The other fields override its values.
	Like             string            `yaml:"like"`
	Peaks            map[string]string `yaml:"peaks"`
	Kernels          *fileKernels      `yaml:"kernels"`
	Tensor           int               `yaml:"tensor"`
	TensorLink       *fileGroup        `yaml:"tensor_link"`
	SequenceParallel bool              `yaml:"sequence_parallel"`
	PricePerHour     float64           `yaml:"price_per_hour"`
}

// fileNode is one group of the innermost level, or Count such groups in a row.
type fileNode struct {
	Count     int      `yaml:"count"`
	Device    string   `yaml:"device"`
	Devices   []string `yaml:"devices"` // one type for each device, if the types differ
	Memory    string   `yaml:"memory"`
	Bandwidth string   `yaml:"bandwidth"`
	Latency   string   `yaml:"latency"`
	Cores     int      `yaml:"cores"`
}

type fileLevel struct {
	Name                string `yaml:"name"`
	Size                int    `yaml:"size"`
	Bandwidth           string `yaml:"bandwidth"`
	Latency             string `yaml:"latency"`
	CollectiveBandwidth string `yaml:"collective_bandwidth"`
	Duplex              string `yaml:"duplex"`
	OccupiesDevice      bool   `yaml:"occupies_device"`
	Shared              bool   `yaml:"shared"`
	Uplinks             bool   `yaml:"uplinks"`
	Rails               int    `yaml:"rails"`
	// Oversubscription is the total bandwidth of a member's inner links divided by that of its links to the outside.
	Oversubscription float64                 `yaml:"oversubscription"`
	OneMemory        bool                    `yaml:"one_memory"`
	Contention       bool                    `yaml:"contention"`
	HalfSize         string                  `yaml:"half_size"`
	Protocols        map[string]fileProtocol `yaml:"protocols"`
}

// MaxDevices is the largest number of devices that a file may describe. A search over so many devices takes seconds.
const MaxDevices = 1 << 16

// mostLevels is the largest number of levels of links: more than any real machine has, and few enough to search.
const mostLevels = 16

var files = document.Store[Cluster]{
	Room: "cluster", Bytes: strictyaml.MaxBytes, InFile: strictyaml.InFile,
	Missing: "give a YAML file of the hardware, or a preset that millrace cluster ls lists",
	Decode: func(text []byte) (*Cluster, error) {
		f, err := parse(text)
		if err != nil {
			return nil, err
		}
		return f.cluster()
	},
}

// Read reads a cluster file. If there is no such file and the name has no slash or dot, it looks for a preset of that
// name (see Preset).
func Read(path string) (*Cluster, error) {
	c, err := files.Read(path)
	if errors.Is(err, fs.ErrNotExist) && looksLikePreset(path) {
		return Preset(path)
	}
	return c, err
}

// Parse reads the YAML form. An unknown key is an error that quotes the line.
func Parse(r io.Reader) (*Cluster, error) { return files.From(r) }

func parse(source []byte) (*file, error) {
	var f file
	err := strictyaml.Decode(source, &f)
	switch {
	case errors.Is(err, io.EOF):
		return nil, fmt.Errorf("cluster: the file is empty; it has name, device_types, device and levels")
	case err != nil:
		return nil, fmt.Errorf("cluster: %w", err)
	}
	return &f, nil
}

func (f *file) cluster() (*Cluster, error) {
	c := &Cluster{Name: f.Name, Cores: f.Cores, DeviceTypes: map[string]DeviceType{}}
	called := append([]string{f.Name}, slices.Collect(maps.Keys(f.DeviceTypes))...)
	for _, l := range f.Levels {
		called = append(called, l.Name)
	}
	for _, name := range called {
		if err := names.Check(name); err != nil {
			return nil, fmt.Errorf("cluster: it has %w", err)
		}
	}
	if f.Cores < 0 {
		return nil, fmt.Errorf("cluster: %s: cores is %d; it must be 1 or more, or left out", f.Name, f.Cores)
	}
	for name, d := range f.DeviceTypes {
		d, err := d.resolved()
		var t DeviceType
		if err == nil {
			t, err = d.deviceType()
		}
		if err != nil {
			return nil, fmt.Errorf("cluster: %s: device type %s: %w", f.Name, name, err)
		}
		c.DeviceTypes[name] = t
	}
	count := 1
	if len(f.Levels) > mostLevels {
		return nil, fmt.Errorf("cluster: %s has %d levels; %d at most are read", f.Name, len(f.Levels), mostLevels)
	}
	for i, l := range f.Levels {
		level, err := l.level()
		if err != nil {
			return nil, fmt.Errorf("cluster: %s: level %d (%s): %w", f.Name, i, l.Name, err)
		}
		if count *= l.Size; count > MaxDevices {
			return nil, fmt.Errorf("cluster: %s: its levels hold over %d devices", f.Name, MaxDevices)
		}
		if err := l.rails(&level, c.Levels); err != nil {
			return nil, fmt.Errorf("cluster: %s: level %d (%s): %w", f.Name, i, l.Name, err)
		}
		c.Levels = append(c.Levels, level)
	}
	if err := c.checkProtocols(); err != nil {
		return nil, err
	}
	if len(c.Levels) == 0 {
		return nil, fmt.Errorf("cluster: %s has no levels; give one at least, like {name: server, size: 8, "+
			"bandwidth: 130GB/s, latency: 5us}", f.Name)
	}
	if err := f.placeDevices(c, count); err != nil {
		return nil, err
	}
	c.PerHost = f.PerHost
	return c, c.checkHosts()
}

func (d fileDeviceType) deviceType() (t DeviceType, err error) {
	t.Efficiency = d.Efficiency
	if d.Memory != "" {
		if t.MemoryBytes, err = memory(d.Memory); err != nil {
			return t, err
		}
	}
	for kind, e := range d.Efficiency {
		if !(e > 0 && e <= 2) {
			return t, fmt.Errorf("efficiency of %s is %v; a fraction over 0, up to 1, or to 2 where an algorithm "+
				"does with less arithmetic than is counted", kind, e)
		}
	}
	if d.Peak != "" {
		if t.PeakFLOPS, err = positive(d.Peak, "peak", speedUnits); err != nil {
			return t, err
		}
	}
	if d.MemoryBandwidth != "" {
		if t.MemoryBandwidthBytesPerSecond, err = positive(d.MemoryBandwidth, "memory_bandwidth",
			rateUnits); err != nil {
			return t, err
		}
	}
	if err := d.describe(&t); err != nil || d.FPGA == nil {
		return t, err
	}
	if d.Peak != "" {
		return t, fmt.Errorf("it has both peak and fpga; a board's peak is dsp_slices x flops_per_slice x clock, so " +
			"leave peak out")
	}
	if t.FPGA, err = d.FPGA.board(); err != nil {
		return t, fmt.Errorf("fpga: %w", err)
	}
	t.PeakFLOPS = t.FPGA.PeakFLOPS()
	return t, nil
}

func (l fileLevel) level() (out Level, err error) {
	out = Level{Name: l.Name, Size: l.Size, FullDuplex: l.Duplex != "half", OccupiesDevice: l.OccupiesDevice,
		Shared: l.Shared, Uplinks: l.Uplinks, OneMemory: l.OneMemory, Contention: l.Contention}
	if l.Size < 1 || l.Size > MaxDevices {
		return out, fmt.Errorf("size is %d; it must be 1 at least, and %d at most", l.Size, MaxDevices)
	}
	if l.Shared && l.Uplinks {
		return out, fmt.Errorf("it has both shared (one link for all) and uplinks (one for each member); choose one")
	}
	if l.Contention && l.OneMemory {
		return out, fmt.Errorf("it has both contention and one_memory; memory that is handed over uses no port, so choose " +
			"one")
	}
	if l.Duplex != "" && l.Duplex != "half" && l.Duplex != "full" {
		return out, fmt.Errorf("duplex is %q; it is full or half", l.Duplex)
	}
	if out.BandwidthBytesPerSecond, err = positive(l.Bandwidth, "bandwidth", rateUnits); err != nil {
		return out, err
	}
	if l.Latency != "" {
		if out.LatencyS, err = quantity(l.Latency, "latency", timeUnits); err != nil {
			return out, err
		}
	}
	if l.CollectiveBandwidth != "" {
		if out.CollectiveBandwidthBytesPerSecond, err = positive(l.CollectiveBandwidth, "collective_bandwidth",
			rateUnits); err != nil {
			return out, err
		}
	}
	return out, l.sized(&out)
}
