// Package cluster describes the hardware: device types, how many, their
// memory, and the hierarchy of links between them.
//
// In: YAML or JSON with units in every quantity ("16GiB", "25Gbps", "5us"), a
// preset's name, or this machine as measured. Out: a Cluster that answers which
// device a number is and how long a transfer or an all-reduce takes.
// Refused: quantities without a unit, levels of size 0, unknown keys or device
// types; the error quotes the line. It does not know who launches anything.
package cluster

// DeviceType is a kind of device.
type DeviceType struct {
	MemoryBytes                   int64   // 0: not limited
	PeakFLOPS                     float64 // floating-point operations a second
	MemoryBandwidthBytesPerSecond float64
	// Efficiency is the fraction of PeakFLOPS that a layer kind reaches; "" is the default
	// for kinds not listed, "memory" the fraction of MemoryBandwidthBytesPerSecond.
	// A kind in none of them takes the constant in package profile.
	Efficiency map[string]float64
	FPGA       *FPGA // nil: not a board
	// Peaks is the peak by precision (Precisions), where more than single precision's is described.
	Peaks map[string]float64
	// Kernels is how fast kernels are by kind and size; nil: as a roofline has it, by Efficiency alone.
	Kernels *Kernels
	// Group makes a device of that many of these; MemoryBytes and PricePerHour are then of all of them. nil: it is one.
	Group        *Group
	PricePerHour float64 // in any money; 0: not said
}

// Level is one level of the hierarchy: Size groups of the level inside it,
// joined by links of this bandwidth and latency.
type Level struct {
	Name                              string
	Size                              int
	BandwidthBytesPerSecond           float64 // of one link, each direction when FullDuplex
	LatencyS                          float64
	CollectiveBandwidthBytesPerSecond float64 // bus bandwidth all-reduce reaches; 0: as BandwidthBytesPerSecond
	FullDuplex                        bool
	// BaPipe's synchronous execution: a transfer keeps both devices from computing
	OccupiesDevice bool
	Shared         bool // one link for the whole group, so that all its transfers contend
	// OneMemory: devices are threads of one process. What is sent is the receiver's to hold at
	// once, and LatencyS is that of waking it.
	OneMemory bool
	// Uplinks: each member of the group (a server, in a rack) has one link to the others,
	// which all devices inside it share, so that what they send out contends. Without it
	// every pair of devices has a link of its own.
	Uplinks bool
	// Rails: each member has so many such links, each shared by as many of its devices in a row; 0: by Uplinks.
	Rails int
}

// Node is what one group of the innermost level has that others have not. Zero fields
// change nothing.
type Node struct {
	MemoryBytes             int64   // of each of its devices, in place of the type's
	BandwidthBytesPerSecond float64 // of the links inside it, in place of the innermost level's
	LatencyS                float64
	Cores                   int // that its workers share, in place of the cluster's
}

// Cluster is devices and links. Devices are numbered from 0 with the innermost level running fastest. It has many
// methods: pure questions about one value, and copies of it with something changed.
type Cluster struct {
	Name        string
	DeviceTypes map[string]DeviceType
	Devices     []string // type of each device, by number
	Cores       int      // cores that the workers of each node share; 0: each has its own
	// CoreGroup is how many devices in a row share Cores where it is not a node's; 0: a node's.
	CoreGroup int
	Levels    []Level // innermost first; the product of sizes is len(Devices)
	Nodes     []Node  // by group of the innermost level; nil: all are alike
	// PerHost is how many devices each host has, in their order; one number: every host. nil: each group of the
	// innermost level is a host.
	PerHost []int
}
