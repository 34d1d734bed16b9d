package profile

import (
	"fmt"
	"slices"
)

// Machine describes one device type's machine, apart from the costs of layers.
type Machine struct {
	Device string `json:"device"`
	Source string `json:"source"`
	// The other fields are the same as in Profile.
	Engine      string      `json:"engine,omitempty"`
	Concurrency int         `json:"concurrency,omitempty"`
	PaceSpread  float64     `json:"pace_spread,omitempty"`
	PassSpread  *PassSpread `json:"pass_spread,omitempty"`
	Transfer    *Transfer   `json:"transfer,omitempty"`
}

// On returns what a profile says about a device type's machine.
func (p *Profile) On(device string) Machine {
	if at := p.machine(device); at >= 0 {
		return p.Machines[at]
	}
	return Machine{Device: device, Source: p.Source, Engine: p.Engine, Concurrency: p.Concurrency,
		PaceSpread: p.PaceSpread, PassSpread: p.PassSpread, Transfer: p.Transfer}
}

// DeviceUpdate is the time of one update of a layer on a device type.
type DeviceUpdate struct {
	Device string `json:"device"`
	UpdateTimes
}

// UpdatesOn returns the time of one update of the layer's parameters on a device type.
func (l *Layer) UpdatesOn(device string) UpdateTimes {
	for i := range l.Updates {
		if l.Updates[i].Device == device {
			return l.Updates[i].UpdateTimes
		}
	}
	return l.UpdateTimes
}

// ScaleUpdates multiplies each of the layer's update times, on every device type.
func (l *Layer) ScaleUpdates(plain, pulled, reference float64) {
	l.UpdateTimes.Scale(plain, pulled, reference)
	l.Updates = slices.Clone(l.Updates)
	for i := range l.Updates {
		l.Updates[i].Scale(plain, pulled, reference)
	}
}

func (p *Profile) machine(device string) int {
	return slices.IndexFunc(p.Machines, func(m Machine) bool { return m.Device == device })
}

// validateMachines refuses a joined profile whose machines do not match its costs.
func (p *Profile) validateMachines() error {
	if len(p.Machines) == 0 {
		return nil
	}
	if p.Transfer != nil || p.Concurrency != 0 || p.PaceSpread != 0 || p.PassSpread != nil || p.Engine != "" {
		return fmt.Errorf("engine, concurrency, spreads and transfer are those of a device type where there are " +
			"machines; leave them out above")
	}
	types := p.DeviceTypes()
	for i := range p.Machines {
		m := &p.Machines[i]
		switch {
		case !slices.Contains(types, m.Device):
			return wrong("machines: device", fmt.Sprintf("%q", m.Device), fmt.Sprintf("one that layers have costs on, of %q",
				types))
		case p.machine(m.Device) != i:
			return wrong("machines: device", fmt.Sprintf("%q, twice", m.Device), "there once")
		}
		if err := validMachine(m.PaceSpread, m.PassSpread, m.Concurrency, m.Transfer); err != nil {
			return fmt.Errorf("machines: %s: %w", m.Device, err)
		}
	}
	if len(p.Machines) != len(types) {
		return wrong("machines", fmt.Sprintf("of %d device types", len(p.Machines)), fmt.Sprintf("of all %q", types))
	}
	return nil
}

// validateUpdates refuses updates by device type that do not match the layer's costs.
func (l *Layer) validateUpdates() error {
	if err := times(l.UpdateTimes.named()...); err != nil || len(l.Updates) == 0 {
		return err
	}
	if l.UpdateTimes != (UpdateTimes{}) {
		return wrong("update_s", l.UpdateS, "left out where there are updates by device type")
	}
	seen := map[string]bool{}
	for i := range l.Updates {
		u := &l.Updates[i]
		known := slices.ContainsFunc(l.Costs, func(c Cost) bool { return c.Device == u.Device })
		if !known || seen[u.Device] {
			return wrong("updates: device", fmt.Sprintf("%q", u.Device), "a device type that it has costs on, once")
		}
		seen[u.Device] = true
		if err := times(u.named()...); err != nil {
			return fmt.Errorf("updates: %s: %w", u.Device, err)
		}
	}
	return nil
}
