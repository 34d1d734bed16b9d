package cluster

import "fmt"

// FPGA describes an FPGA board. Its peak is computed from these numbers.
type FPGA struct {
	DSPSlices     int
	ClockHz       float64
	FLOPsPerSlice float64 // operations of one slice per cycle; a multiply and an add count as two
	OnChipBytes   int64   // memory next to the slices; reading weights from it needs no memory bandwidth
	Transceivers  []Transceiver
}

// Transceiver is a kind of serial lane on a board.
type Transceiver struct {
	Name           string
	Lanes          int
	BytesPerSecond float64 // of one lane, in each direction
}

// PeakFLOPS returns slices x operations per cycle x clock.
func (f *FPGA) PeakFLOPS() float64 { return float64(f.DSPSlices) * f.FLOPsPerSlice * f.ClockHz }

// OnChipBytes returns the size of the on-chip memory, from which a device reads weights without using memory bandwidth.
// It is 0 for devices without such memory.
func (t DeviceType) OnChipBytes() int64 {
	if t.FPGA == nil {
		return 0
	}
	return t.FPGA.OnChipBytes
}

type fileFPGA struct {
	DSPSlices     int               `yaml:"dsp_slices"`
	Clock         string            `yaml:"clock"`
	FLOPsPerSlice float64           `yaml:"flops_per_slice"`
	OnChip        string            `yaml:"on_chip"`
	Transceivers  []fileTransceiver `yaml:"transceivers"`
}

type fileTransceiver struct {
	Name  string `yaml:"name"`
	Lanes int    `yaml:"lanes"`
	Rate  string `yaml:"rate"`
}

func (f *fileFPGA) board() (*FPGA, error) {
	b := &FPGA{DSPSlices: f.DSPSlices, FLOPsPerSlice: f.FLOPsPerSlice}
	if f.DSPSlices < 1 || f.DSPSlices > 1<<24 {
		return nil, fmt.Errorf("dsp_slices is %d; a board has 1 to 2^24", f.DSPSlices)
	}
	if b.FLOPsPerSlice == 0 {
		b.FLOPsPerSlice = 2
	}
	if !(b.FLOPsPerSlice > 0 && b.FLOPsPerSlice <= 64) {
		return nil, fmt.Errorf("flops_per_slice is %v; operations of one slice in one cycle, over 0 and up to 64 (a "+
			"multiply and an add are 2)", f.FLOPsPerSlice)
	}
	var err error
	if b.ClockHz, err = positive(f.Clock, "clock", clockUnits); err != nil {
		return nil, err
	}
	if f.OnChip != "" {
		if b.OnChipBytes, err = byteCount(f.OnChip, "on_chip"); err != nil {
			return nil, err
		}
	}
	for i, t := range f.Transceivers {
		rate, err := quantity(t.Rate, "rate", rateUnits)
		if err != nil {
			return nil, fmt.Errorf("transceiver %d (%s): %w", i, t.Name, err)
		}
		if t.Lanes < 0 || t.Lanes > 1<<16 {
			return nil, fmt.Errorf("transceiver %d (%s): lanes is %d; 0 to 65536", i, t.Name, t.Lanes)
		}
		b.Transceivers = append(b.Transceivers, Transceiver{Name: t.Name, Lanes: t.Lanes, BytesPerSecond: rate})
	}
	return b, nil
}
