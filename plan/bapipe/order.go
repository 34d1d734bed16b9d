package bapipe

import (
	"errors"
	"fmt"
	"slices"

	"github.com/millrace-ml/millrace/cluster"
	"github.com/millrace-ml/millrace/plan"
)

// sizesOf returns the micro-batch sizes to try, ascending. If the request has a size, only that size is tried.
// Otherwise the sizes are those divisors of the batch for which the profile has costs on every device type in the
// cluster.
func sizesOf(r plan.Request) ([]int, error) {
	if m := r.MicroBatch; m > 0 {
		if r.Batch%m != 0 {
			return nil, fmt.Errorf("plan: bapipe: a batch of %d samples is no multiple of the micro-batch, %d", r.Batch,
				m)
		}
		return []int{m}, nil
	}
	var sizes []int
	for _, s := range r.Profile.Sizes(r.Cluster.Devices[0]) {
		if r.Batch%s == 0 && !slices.ContainsFunc(r.Cluster.Devices, func(d string) bool {
			return !slices.Contains(r.Profile.Sizes(d), s)
		}) {
			sizes = append(sizes, s)
		}
	}
	if len(sizes) == 0 {
		return nil, fmt.Errorf("plan: bapipe: none of the profiled micro-batch sizes %v divides a batch of %d on "+
			"every device type; change the batch, or fix a micro-batch size",
			r.Profile.Sizes(r.Cluster.Devices[0]), r.Batch)
	}
	return sizes, nil
}

// maxOrders is the largest number of orders of mixed devices that are tried.
const maxOrders = 720

var errTooMany = errors.New("too many orders")

// chainsOf lists the numbers of chains to try. The chains of a plan work side by side, and every chain has the same
// number of devices of each type. Several chains must use all devices, unless the number of stages is set. If the
// setting `chains` is a number, only that number is tried.
func chainsOf(c *cluster.Cluster, o options) []int {
	if o.chains > 0 {
		return []int{o.chains}
	}
	of := map[string]int{}
	for _, t := range c.Devices {
		of[t]++
	}
	var out []int
	for d := 1; d == 1 || 2*d <= len(c.Devices); d++ {
		whole, length := true, 0
		for _, n := range of {
			whole, length = whole && n%d == 0, length+n/d
		}
		if d == 1 || o.exactly && length >= o.stages || !o.exactly && whole && length <= o.stages {
			out = append(out, d)
		}
	}
	return out
}

// ordersOf returns the placements to try for a number of chains, the given order first. A placement has the devices of
// each stage: one for each chain, all of one type. Devices of one type are identical, so orders differ only by the
// types of devices. Devices are assigned chain by chain. If there are several chains and levels of links, each order
// also gets a second placement, which assigns devices stage by stage. `all` says whether every order is included.
func ordersOf(c *cluster.Cluster, o options, chains int) (places [][][]int, all bool) {
	of := map[string][]int{}
	var types []string
	for d, t := range c.Devices {
		if of[t] == nil {
			types = append(types, t)
		}
		of[t] = append(of[t], d)
	}
	length := 0
	for _, t := range types {
		length += len(of[t]) / chains
	}
	length = min(length, o.stages)
	var given []string
	used := map[string]int{}
	for _, t := range c.Devices {
		if used[t] < len(of[t])/chains && len(given) < length {
			used[t]++
			given = append(given, t)
		}
	}
	orders, all := [][]string{given}, true
	if o.search && len(types) > 1 {
		orders, all = walked(types, given, func(t string) int { return len(of[t]) / chains })
	}
	for _, order := range orders {
		places = append(places, placed(order, of, chains, false))
		if chains > 1 && len(c.Levels) > 1 {
			places = append(places, placed(order, of, chains, true))
		}
	}
	return places, all
}

// placed assigns devices to an order of types.
func placed(order []string, of map[string][]int, chains int, stageByStage bool) [][]int {
	used := map[string]int{}
	var out [][]int
	for _, t := range order {
		at, each := used[t], len(of[t])/chains
		used[t]++
		var on []int
		for k := range chains {
			if stageByStage {
				on = append(on, of[t][at*chains+k])
			} else {
				on = append(on, of[t][k*each+at])
			}
		}
		out = append(out, on)
	}
	return out
}

// walked returns the orders of device types along a chain that has most(t) devices of each type t. The order `given`
// comes first. If there are more than maxOrders orders, walked leaves out those that do not keep each type together.
func walked(types, given []string, most func(string) int) (orders [][]string, all bool) {
	orders = [][]string{given}
	used := map[string]int{}
	var now []string
	var walk func(blocks bool) error
	walk = func(blocks bool) error {
		if len(now) == len(given) {
			if !slices.Equal(now, given) {
				orders = append(orders, slices.Clone(now))
			}
			if len(orders) > maxOrders {
				return errTooMany
			}
			return nil
		}
		for _, t := range types {
			if used[t] == most(t) {
				continue
			}
			if blocks && len(now) > 0 {
				if before := now[len(now)-1]; before != t && used[before] < most(before) {
					continue
				}
			}
			now = append(now, t)
			used[t]++
			err := walk(blocks)
			used[t]--
			now = now[:len(now)-1]
			if err != nil {
				return err
			}
		}
		return nil
	}
	if walk(false) == nil {
		return orders, true
	}
	orders, now, used = [][]string{given}, nil, map[string]int{}
	_ = walk(true) // an error means that there are more than maxOrders
	return orders[:min(len(orders), maxOrders)], false
}
