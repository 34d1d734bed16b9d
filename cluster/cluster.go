// Package cluster describes the hardware: device types, how many of each, their memory, and the hierarchy of links
// between them.
//
// Input: YAML or JSON with units in every quantity ("16GiB", "25Gbps", "5us"), a preset's name, or a measurement of
// this machine. Output: a Cluster, which returns the type of each device and how long a transfer or an all-reduce
// takes. Errors: quantities without a unit, levels of size 0, unknown keys or device types; the error quotes the line.
// The package does not know how workers are launched.
package cluster

// DeviceType is a kind of device.
type DeviceType struct {
	MemoryBytes                   int64   // 0 means no limit
	PeakFLOPS                     float64 // floating-point operations per second
	MemoryBandwidthBytesPerSecond float64
	// Efficiency is the fraction of PeakFLOPS that each layer kind reaches. The key "" is for all kinds that have no
	// key of their own. The key "memory" is the fraction of MemoryBandwidthBytesPerSecond; the key "" does not apply to
	// it. If neither a kind's key nor "" is given, the constant in package profile applies.
	Efficiency map[string]float64
	FPGA       *FPGA // nil if the device is not an FPGA board
	// Peaks holds the peak of each precision that the file gives, in operations per second (see Precisions).
	Peaks map[string]float64
	// Kernels holds how fast kernels are, by kind and size. nil means a roofline model that uses only Efficiency.
	Kernels *Kernels
	// Group says that one device is a group of several devices of this type. MemoryBytes and PricePerHour are then
	// those of the whole group. nil means a single device.
	Group        *Group
	PricePerHour float64 // in any currency; 0 means unknown
}

// Level is one level of the hierarchy. Its links join Size members, and each member is a group of the next inner level.
type Level struct {
	Name                              string
	Size                              int
	BandwidthBytesPerSecond           float64 // of one link; with FullDuplex, of each direction
	LatencyS                          float64
	CollectiveBandwidthBytesPerSecond float64 // bus bandwidth of an all-reduce; 0: the links' bandwidth
	FullDuplex                        bool
	// OccupiesDevice says that the two devices of a transfer do not compute during it (BaPipe's synchronous execution).
	OccupiesDevice bool
	Shared         bool // one link for the whole group; all its transfers compete for it
	// OneMemory says that the devices are threads of one process. A message then takes up the receiver's memory as soon
	// as it is sent, and LatencyS is the time to wake the receiver.
	OneMemory bool
	// Uplinks says that each member of the group (a server in a rack, for example) has one link to the other members.
	// All devices inside the member share it. Without Uplinks, Rails and Shared every pair of devices has its own link.
	Uplinks bool
	// Rails is the number of links that each member has to the others. Each rail is shared by the same number of
	// consecutive devices. 0 means that the level has no rails.
	Rails int
	// HalfBytes is the size of a message that reaches half of BandwidthBytesPerSecond; 0: every message reaches all of
	// it.
	HalfBytes float64
	// Protocols lists the protocols from which a collective chooses, sorted by name. If nil, a collective has LatencyS
	// and the full bandwidth.
	Protocols []Protocol
	// Contention says that messages and sums of gradients share the bandwidth of a port of this level. Without
	// Contention, messages wait for each other on a link, and collectives and messages do not slow each other down.
	Contention bool
}

// Node says how one group of the innermost level differs from the rest. A zero field means no difference.
type Node struct {
	MemoryBytes             int64   // memory of each device of the node, instead of its type's
	BandwidthBytesPerSecond float64 // of the links inside the node, instead of the innermost level's
	LatencyS                float64
	Cores                   int // cores shared by the node's workers, instead of the cluster's Cores
}

// Cluster is a set of devices and the links between them. Devices are numbered from 0; numbers within an innermost
// group are consecutive. Its methods answer questions about the cluster, or return a changed copy.
type Cluster struct {
	Name        string
	DeviceTypes map[string]DeviceType
	Devices     []string // type of each device, by device number
	Cores       int      // cores that the workers of a node share; 0 means that each worker has its own
	// CoreGroup is the number of consecutive devices that share Cores; 0 means the devices of a node.
	CoreGroup int
	Levels    []Level // innermost first; the product of their sizes is len(Devices)
	Nodes     []Node  // differences of each group of the innermost level; nil: there are none
	// PerHost is the number of devices of each host, in order. A single number applies to every host. nil means that
	// each group of the innermost level is a host.
	PerHost []int
}
