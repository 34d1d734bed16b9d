package profile

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// SourceJoined is the Source of a profile joined from profiles with different sources.
const SourceJoined = "joined"

// Part is a profile to join with others.
type Part struct {
	Name    string // the file, for errors
	Profile *Profile
}

// Join returns one profile with the device types of several profiles of the same model.
//
// The data of each machine is in Machines, by device type. The result's Slices has every size that is in the Slices of
// some part. The result does not depend on the order of the parts, or on whether some of them were joined before.
//
// Refused: different models, layers, precisions, optimizers or threads per worker; a device type with different numbers
// in two parts; costs that hold on any device; device types that have no micro-batch size in common.
func Join(parts ...Part) (*Profile, error) {
	if len(parts) == 0 {
		return nil, fmt.Errorf("profile: there is nothing to join")
	}
	first := parts[0]
	precision := first.Profile.Precision
	if precision == "f32" {
		precision = "" // "f32" and "" mean the same; only "" is used, so that the order of the parts does not matter
	}
	out := &Profile{
		Version: Version, Model: first.Profile.Model, ModelID: first.Profile.ModelID, Source: first.Profile.Source,
		ThreadsPerWorker: first.Profile.ThreadsPerWorker, Optimizer: first.Profile.Optimizer,
		OptimizerStates: first.Profile.OptimizerStates, Precision: precision,
		Layers: bare(first.Profile.Layers),
	}
	from := map[string]Part{} // by device type
	for _, part := range parts {
		if err := part.Profile.Validate(); err != nil {
			return nil, fmt.Errorf("profile: %s: %w", part.Name, err)
		}
		if err := fits(first, part); err != nil {
			return nil, err
		}
		if part.Profile.Source != out.Source {
			out.Source = SourceJoined
		}
		out.Slices = append(out.Slices, part.Profile.Slices...)
		for _, device := range part.Profile.DeviceTypes() {
			if device == AnyDevice {
				return nil, fmt.Errorf("profile: %s has costs on any device; say which it is, as in: NAME=%s", part.Name,
					part.Name)
			}
			if other, known := from[device]; known {
				if err := sameFigures(device, other, part); err != nil {
					return nil, err
				}
				continue
			}
			from[device] = part
			out.take(part.Profile, device)
		}
	}
	slices.Sort(out.Slices)
	out.Slices = slices.Compact(out.Slices)
	if err := out.sizesInCommon(); err != nil {
		return nil, err
	}
	slices.SortFunc(out.Machines, func(a, b Machine) int { return strings.Compare(a.Device, b.Device) })
	for i := range out.Layers {
		slices.SortFunc(out.Layers[i].Updates, func(a, b DeviceUpdate) int { return strings.Compare(a.Device, b.Device) })
		slices.SortFunc(out.Layers[i].Costs, func(a, b Cost) int {
			return cmp.Or(strings.Compare(a.Device, b.Device), cmp.Compare(a.MicroBatch, b.MicroBatch))
		})
	}
	return out, out.Validate()
}

// take adds a profile's data of a device type.
func (p *Profile) take(from *Profile, device string) {
	p.Machines = append(p.Machines, from.On(device))
	for i := range from.Layers {
		into, of := &p.Layers[i], &from.Layers[i]
		into.Updates = append(into.Updates, DeviceUpdate{device, of.UpdatesOn(device)})
		into.Costs = append(into.Costs, costsOn(of, device)...)
	}
}

func costsOn(l *Layer, device string) []Cost {
	var own []Cost
	for _, c := range l.Costs {
		if c.Device == device {
			own = append(own, c.owned())
		}
	}
	return own
}

// bare returns the layers without the data of device types.
func bare(layers []Layer) []Layer {
	out := slices.Clone(layers)
	for i := range out {
		out[i].Costs, out[i].Updates, out[i].UpdateTimes = nil, nil, UpdateTimes{}
	}
	return out
}

// fits refuses a part whose model or training settings differ from another part's.
func fits(a, b Part) error {
	p, q := a.Profile, b.Profile
	refuse := func(what string, has, want any) error {
		return fmt.Errorf("profile: %s of %s is %v; of %s it is %v: only profiles that agree in it are joined", what, b.Name,
			has, a.Name, want)
	}
	switch {
	case p.Model != q.Model || p.ModelID != q.ModelID:
		return refuse("the model", q.Model+" ("+q.ModelID+")", p.Model+" ("+p.ModelID+")")
	case p.Optimizer != q.Optimizer:
		return refuse("the optimizer", q.Optimizer, p.Optimizer)
	case p.OptimizerStates != q.OptimizerStates:
		return refuse("optimizer_states", q.OptimizerStates, p.OptimizerStates)
	case cmp.Or(p.Precision, "f32") != cmp.Or(q.Precision, "f32"):
		return refuse("the precision", cmp.Or(q.Precision, "f32"), cmp.Or(p.Precision, "f32"))
	case p.ThreadsPerWorker != q.ThreadsPerWorker:
		return refuse("threads_per_worker", q.ThreadsPerWorker, p.ThreadsPerWorker)
	case len(p.Layers) != len(q.Layers):
		return refuse("the number of layers", len(q.Layers), len(p.Layers))
	}
	for i := range p.Layers {
		one, other := reflect.ValueOf(p.Layers[i]), reflect.ValueOf(q.Layers[i])
		for f := range one.NumField() {
			field := one.Type().Field(f)
			if field.Name == "Costs" || field.Name == "Updates" || field.Name == "UpdateTimes" {
				continue
			}
			v, w := one.Field(f).Interface(), other.Field(f).Interface()
			if !reflect.DeepEqual(v, w) {
				key, _, _ := strings.Cut(field.Tag.Get("json"), ",")
				return refuse(fmt.Sprintf("layer %d (%s): %s", i, p.Layers[i].Name, key), w, v)
			}
		}
	}
	return nil
}

// sameFigures refuses a device type that two parts describe differently.
func sameFigures(device string, a, b Part) error {
	differ := func(what string) error {
		return fmt.Errorf("profile: %s and %s both measured device type %s, and differ in %s: if these are different "+
			"machines, name them apart, as in: NAME=%s OTHER=%s; if not, leave one out", a.Name, b.Name, device, what, a.Name,
			b.Name)
	}
	p, q := a.Profile, b.Profile
	if !reflect.DeepEqual(p.On(device), q.On(device)) {
		return differ("what they say of the machine")
	}
	for i := range p.Layers {
		c, d := costsOn(&p.Layers[i], device), costsOn(&q.Layers[i], device)
		bySize := func(a, b Cost) int { return cmp.Compare(a.MicroBatch, b.MicroBatch) }
		slices.SortFunc(c, bySize)
		slices.SortFunc(d, bySize)
		if !reflect.DeepEqual(c, d) || p.Layers[i].UpdatesOn(device) != q.Layers[i].UpdatesOn(device) {
			return differ(fmt.Sprintf("layer %d (%s)", i, p.Layers[i].Name))
		}
	}
	return nil
}

// sizesInCommon refuses device types that have no micro-batch size in common.
func (p *Profile) sizesInCommon() error {
	var common []int
	said := ""
	for i, m := range p.Machines {
		sizes := p.Sizes(m.Device)
		if said += fmt.Sprintf(", %v on %s", sizes, m.Device); i == 0 {
			common = sizes
		}
		common = slices.DeleteFunc(slices.Clone(common), func(n int) bool { return !slices.Contains(sizes, n) })
	}
	if len(common) == 0 {
		return fmt.Errorf("profile: no micro-batch size is there of every device type: %s; profile again with --sizes that "+
			"they share", strings.TrimPrefix(said, ", "))
	}
	return nil
}

// Renamed returns the profile with its only device type renamed.
func (p *Profile) Renamed(device string) (*Profile, error) {
	types := p.DeviceTypes()
	if len(types) != 1 {
		return nil, fmt.Errorf("profile: %s has costs on %s; one name is for a profile of one device type", p.Model,
			strings.Join(types, ", "))
	}
	out := *p
	out.Layers = slices.Clone(p.Layers)
	for i := range out.Layers {
		out.Layers[i].Costs = slices.Clone(out.Layers[i].Costs)
		for k := range out.Layers[i].Costs {
			out.Layers[i].Costs[k].Device = device
		}
		out.Layers[i].Updates = slices.Clone(out.Layers[i].Updates)
		for k := range out.Layers[i].Updates {
			out.Layers[i].Updates[k].Device = device
		}
	}
	out.Machines = slices.Clone(p.Machines)
	for i := range out.Machines {
		out.Machines[i].Device = device
	}
	return &out, out.Validate()
}
