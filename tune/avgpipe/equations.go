package avgpipe

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// Degrees is AvgPipe's two parallelism degrees (section 5).
type Degrees struct {
	MicroBatches int `json:"micro_batches"` // M: micro-batches of one batch
	Pipelines    int `json:"pipelines"`     // N: pipelines, each with its own batch
}

// String returns the degrees as "M=4 N=2".
func (d Degrees) String() string { return fmt.Sprintf("M=%d N=%d", d.MicroBatches, d.Pipelines) }

func (d Degrees) check() error {
	if d.MicroBatches < 1 || d.Pipelines < 1 {
		return fmt.Errorf("tune: %d micro-batches and %d pipelines; both must be 1 at least", d.MicroBatches, d.Pipelines)
	}
	return nil
}

// Observed is what AvgPipe's profiler collects for one device during one setting's batches (section 5.2.1). An
// iteration is one batch of every pipeline.
type Observed struct {
	// Utilisation is phi over the device's computing time for one batch. That time is an iteration's computing time
	// divided by its N batches.
	Utilisation Curve `json:"utilisation"`
	// CommunicationS is C: how long the messages that the device sends in an iteration take, in seconds. It covers all
	// pipelines. Waiting for a link is not included.
	CommunicationS float64 `json:"communication_s"`
	// BlockedS is how long the device waited for messages on their way, and BubbleS for other devices to compute. Both
	// are measured for one batch; equations 4 and 5 predict them.
	BlockedS float64 `json:"blocked_s"`
	BubbleS  float64 `json:"bubble_s"`
	// ModelBytes is F_mod: parameters, gradients and optimizer states of the N models, and the reference. It does not
	// depend on the micro-batches. DataBytes is F_dat, the rest of the peak.
	ModelBytes int64 `json:"model_bytes"`
	DataBytes  int64 `json:"data_bytes"`
	// Only the Adjusted form reads the following fields; 0 means unknown. InFlightS is the time of an iteration in
	// which any message of the device waited for a link or was on its way. ReferenceBytes is one set of parameters of
	// the device's stages, which the reference holds. UpdateBytes is the temporary memory of an update. Held is the
	// largest number of one pipeline's micro-batches that the device kept between forward and backward. FlushS is the
	// wait for collectives at the end of a batch, which is part of BubbleS.
	InFlightS      float64 `json:"in_flight_s,omitempty"`
	ReferenceBytes int64   `json:"reference_bytes,omitempty"`
	UpdateBytes    int64   `json:"update_bytes,omitempty"`
	Held           int     `json:"held,omitempty"`
	FlushS         float64 `json:"flush_s,omitempty"`
}

// Observation is one profiled setting.
type Observation struct {
	At      Degrees    `json:"at"`
	StepS   float64    `json:"step_s"` // seconds for one batch, as measured
	Devices []Observed `json:"devices"`
}

// Form is an interpretation of equations 1 to 8.
type Form string

const (
	// Printed is the equations as the paper has them.
	Printed Form = "printed"
	// Adjusted keeps the terms of Printed and corrects the following.
	//
	// Equation 2 spreads an iteration over its N batches, but equations 4, 6 and 7 do not. Here every term is for one
	// iteration and is divided by N at the end.
	//
	// Equation 2 lets parallel pipelines run kernels side by side until the device is full. A CPU core, and a worker of a
	// Program, runs one computation at a time. So utilisation here rises only with the micro-batch. N pipelines of M
	// micro-batches pass through the devices like one pipeline of M*N micro-batches, so equations 3, 6 and 7 use M*N.
	//
	// Equation 4 adds up messages as if each had a link to itself. It ignores links that several devices share, like a
	// node's network card, and latencies that overlap. Here the first message has its link to itself. The later messages
	// take InFlightS, if it is known: the time in which any message waited for a link or was on its way.
	//
	// Equation 8 multiplies the single reference by N. With one pipeline there is no reference.
	//
	// Equation 8 assumes that a device holds the same number of micro-batches for every M. Here it is at most M. An
	// update's temporary memory is not added to the micro-batches' memory; the larger of the two counts.
	//
	// Equation 1 has no term for the end of a batch: sums of tied gradients, norms, all-reduces. Here the profiled wait
	// for them is added for every batch, because the pipelines' batches end one after the other.
	Adjusted Form = "adjusted"
)

// DevicePrediction holds the terms of equations 1 to 8 for one device, in seconds for one batch.
type DevicePrediction struct {
	ComputeS       float64 `json:"compute_s"`       // T_gpu, equation 2
	CommunicationS float64 `json:"communication_s"` // C in full, including the overlapped part
	BlockedS       float64 `json:"blocked_s"`       // T_com, equations 3 and 4
	UpS            float64 `json:"up_s"`            // T_up, equation 6
	DownS          float64 `json:"down_s"`          // T_down, equation 7
	FlushS         float64 `json:"flush_s"`         // time of collectives; only in the Adjusted form
	MemoryBytes    int64   `json:"memory_bytes"`    // F, equation 8
}

// TotalS returns equation 1 with equation 5 inserted: T = T_gpu + T_com + T_up + T_down, plus FlushS.
func (d DevicePrediction) TotalS() float64 {
	return d.ComputeS + d.BlockedS + d.UpS + d.DownS + d.FlushS
}

// Prediction is the equations' result for a setting.
type Prediction struct {
	At      Degrees            `json:"at"`
	StepS   float64            `json:"step_s"` // seconds for one batch, of the slowest device
	Devices []DevicePrediction `json:"devices"`
}

// MemoryBytes returns the memory of the fullest device.
func (p Prediction) MemoryBytes() int64 {
	return slices.MaxFunc(p.Devices, func(a, b DevicePrediction) int {
		return cmp.Compare(a.MemoryBytes,
			b.MemoryBytes)
	}).MemoryBytes
}

// Predict applies equations 1 to 8 of AvgPipe (PPoPP 2023, section 5.2) to an observation, and returns time and
// memory at other degrees. The equations are for AFAB, which 1F1B with advance forward propagation approaches
// (section 5.2.2).
func (o *Observation) Predict(to Degrees, form Form) (Prediction, error) {
	if err := o.check(); err != nil {
		return Prediction{}, err
	}
	if err := to.check(); err != nil {
		return Prediction{}, err
	}
	out := Prediction{At: to, Devices: make([]DevicePrediction, len(o.Devices))}
	compute, sent := make([]float64, len(o.Devices)), make([]float64, len(o.Devices))
	pieces, batches := to.MicroBatches, 1.0
	for k, d := range o.Devices {
		sent[k] = Communication(d.CommunicationS, o.At, to)
		if form == Printed {
			compute[k] = ComputeTime(d.Utilisation, o.At, to)
			continue
		}
		alone := Degrees{MicroBatches: to.MicroBatches, Pipelines: o.At.Pipelines}
		compute[k] = float64(to.Pipelines) * ComputeTime(d.Utilisation, o.At, alone)
		pieces, batches = to.MicroBatches*to.Pipelines, float64(to.Pipelines)
	}
	up, down := UpTimes(compute, sent, pieces), DownTimes(compute, sent, pieces)
	for k, d := range o.Devices {
		p := &out.Devices[k]
		p.ComputeS, p.CommunicationS = compute[k]/batches, sent[k]/batches
		p.BlockedS, p.UpS, p.DownS = BlockedTime(sent[k], compute[k], pieces)/batches, up[k]/batches, down[k]/batches
		p.MemoryBytes = int64(math.Round(Footprint(float64(d.ModelBytes), float64(d.DataBytes), o.At, to)))
		if form != Printed {
			p.MemoryBytes, p.FlushS = d.footprint(o.At, to), d.FlushS
			if d.InFlightS > 0 {
				shared := Communication(d.InFlightS, o.At, to)
				behind := 1 - 1/float64(pieces)
				p.BlockedS = (sent[k]/float64(pieces) + behind*max(shared-compute[k], 0)) / batches
			}
		}
		out.StepS = max(out.StepS, p.TotalS())
	}
	return out, nil
}

// ComputeTime is equation 2: the seconds that a device computes for one batch with m' micro-batches and n' pipelines,
// from its utilisation curve phi(t) with m and n,
//
//	T_gpu' = (m' n)/(m n') ( T_gpu + Int_t max( (m n')/(m' n) phi(t) - 1, 0 ) dt ).
//
// Larger micro-batches and more pipelines raise the curve and shorten it by the same factor, until it reaches the
// device's peak.
func ComputeTime(phi Curve, at, to Degrees) float64 {
	rise := float64(at.MicroBatches) * float64(to.Pipelines) / (float64(to.MicroBatches) * float64(at.Pipelines))
	return (phi.Length() + phi.Overload(rise)) / rise
}

// Communication returns C' = (n'/n) C, where C and C' are the seconds of messages with n and n' pipelines. An
// iteration's messages grow with its pipelines, not with the number of micro-batches (text before equation 4).
// Latencies, which grow with the number of micro-batches, are neglected.
func Communication(total float64, at, to Degrees) float64 {
	return total * float64(to.Pipelines) / float64(at.Pipelines)
}

// BlockedTime is equation 4, and with n' = n equation 3: the communication that keeps a device from computing. Nothing
// overlaps the communication of the first of m' micro-batches. The communication of the other micro-batches blocks the
// device only for the part that computing does not cover:
//
//	T_com' = C'/m' + (m'-1)/m' max(C' - T_gpu', 0).
//
// C' is the time of all messages, and T_gpu' the computing time.
func BlockedTime(total, compute float64, microBatches int) float64 {
	m := float64(microBatches)
	return total/m + (m-1)/m*max(total-compute, 0)
}

// UpTimes is equation 6: how long each device k waits until the earlier ones have computed and sent the first of m'
// micro-batches. C^k is the time of device k's messages, and T_gpu^k its computing time.
//
//	T_up^1 = 0,  T_up^k = T_up^(k-1) + (C^(k-1) + T_gpu^(k-1))/m'.
func UpTimes(compute, total []float64, microBatches int) []float64 {
	up := make([]float64, len(compute))
	for k := 1; k < len(up); k++ {
		up[k] = up[k-1] + (total[k-1]+compute[k-1])/float64(microBatches)
	}
	return up
}

// DownTimes is equation 7: how long each device k waits for the later ones. C^k is the time of device k's messages, and
// T_gpu^k its computing time.
//
//	T_down^K = 0,  T_down^k = T_down^(k+1) + (C^(k+1) + T_gpu^(k+1))/m'.
func DownTimes(compute, total []float64, microBatches int) []float64 {
	down := make([]float64, len(compute))
	for k := len(down) - 2; k >= 0; k-- {
		down[k] = down[k+1] + (total[k+1]+compute[k+1])/float64(microBatches)
	}
	return down
}

// Footprint is equation 8, in bytes. F_mod, which does not depend on the number of micro-batches, and F_dat, which
// does, are the memory with m micro-batches and n pipelines. F' is the memory with m' and n'.
//
//	F' = (n'/n) F_mod + (m n')/(m' n) F_dat.
func Footprint(model, data float64, at, to Degrees) float64 {
	pipelines := float64(to.Pipelines) / float64(at.Pipelines)
	return pipelines*model + pipelines*float64(at.MicroBatches)/float64(to.MicroBatches)*data
}

// footprint returns equation 8 in the Adjusted form, in bytes.
func (d *Observed) footprint(at, to Degrees) int64 {
	reference := func(n int) float64 {
		if n == 1 {
			return 0
		}
		return float64(d.ReferenceBytes)
	}
	models := max(float64(d.ModelBytes)-reference(at.Pipelines), 0)
	data := float64(d.DataBytes)
	if d.Held > 0 {
		data *= float64(min(d.Held, to.MicroBatches)) / float64(d.Held)
	}
	working, updating := Footprint(models, data, at, to), Footprint(models, 0, at, to)+float64(d.UpdateBytes)
	return int64(math.Round(max(working, updating) + reference(to.Pipelines)))
}

// check refuses observations that no profiler can produce.
func (o *Observation) check() error {
	if err := o.At.check(); err != nil {
		return fmt.Errorf("%w, in the profiled setting", err)
	}
	if len(o.Devices) == 0 {
		return fmt.Errorf("tune: an observation of no devices; give one for each")
	}
	for k, d := range o.Devices {
		if err := d.Utilisation.check(); err != nil {
			return fmt.Errorf("tune: device %d: %w", k, err)
		}
		if d.Utilisation.Length() <= 0 {
			return fmt.Errorf("tune: device %d never computed in the profiled batches", k)
		}
		if !(d.CommunicationS >= 0) || math.IsInf(d.CommunicationS, 0) {
			return fmt.Errorf("tune: device %d communicates for %v s; it must be a number, 0 or more", k, d.CommunicationS)
		}
		if !(d.InFlightS >= 0) || math.IsInf(d.InFlightS, 0) {
			return fmt.Errorf("tune: device %d has messages on their way for %v s; it must be a number, 0 or more", k,
				d.InFlightS)
		}
		if !(d.FlushS >= 0) || math.IsInf(d.FlushS, 0) {
			return fmt.Errorf("tune: device %d waits %v s for collectives; it must be a number, 0 or more", k, d.FlushS)
		}
		if d.ModelBytes < 0 || d.DataBytes < 0 || d.ReferenceBytes < 0 || d.UpdateBytes < 0 || d.Held < 0 {
			return fmt.Errorf("tune: device %d holds %d bytes of models, %d of data, %d of a reference for %d micro-batches; "+
				"none may be negative",
				k, d.ModelBytes, d.DataBytes, d.ReferenceBytes, d.Held)
		}
	}
	return nil
}
