// Package calibrate adjusts the description of a device to measurements of that device.
//
// Input: a cluster of one device type with kernels, Observations (each with a measured time and a function that
// predicts it), and the names of the numbers to fit. Output: a Fit with the fitted cluster, the uncertainty of each
// number, the remaining error, the error on held-out observations, and the most informative next measurements. Errors:
// names that cannot be fitted, no observations, predictions that fail.
//
// A fit minimises a sum of squares: of log(predicted/measured)/Noise for each observation, and of log(number/its first
// value)/Doubt for each changed number. So numbers that the observations do not determine stay as described. This is
// least squares with a normal prior (ridge regression), by Gauss and Newton's iteration with Levenberg's damping.
//
// For the held-out error, each observation is left out in turn (or each group, or a tenth of many groups). It is
// predicted by a new fit to the others. That fit also decides for itself which numbers to change.
//
// To first order, the numbers are normally distributed around the fit with covariance (J'J/s^2 + D^-2)^-1. J is the
// change of log predictions with log numbers, D the Doubts, and s the larger of Noise and the remaining error. The most
// informative measurement shrinks the covariance's determinant most, so the next design is D-optimal (Chaloner and
// Verdinelli, Bayesian Experimental Design, Statistical Science 10(3), 1995, section 2.2).
package calibrate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/millrace-ml/millrace/cluster"
)

// Noise is the assumed relative error of measurements: a twentieth.
const Noise = 0.05

// Predictor returns a cluster's prediction of a time, in seconds.
type Predictor func(c *cluster.Cluster) (float64, error)

// Observation is a measured time.
type Observation struct {
	Name     string
	Group    string // names observations that are held out together; "" means that this one is held out alone
	Measured float64
	Predict  Predictor
}

// Number is a number that a fit may change.
type Number struct {
	Name          string
	Before, After float64
	Least, Most   float64
	// Doubt and Spread are the number's uncertainty before and after the fit, as a standard deviation of its logarithm.
	Doubt, Spread float64
}

// Told returns the fraction of a number's uncertainty that the observations removed, from 0 to 1.
func (n *Number) Told() float64 { return min(max(1-n.Spread/n.Doubt, 0), 1) }

// Fit is a cluster after calibration.
type Fit struct {
	Cluster  *cluster.Cluster
	Numbers  []Number
	Before   float64   // mean relative error of the observations with the original cluster
	After    float64   // mean relative error of the observations with the fitted cluster
	HeldOut  float64   // mean error of observations, each predicted by a fit without it; NaN if there is only one group
	Folds    int       // number of fits for HeldOut
	Residual []float64 // predicted / measured, by observation, with the fitted cluster

	fitting fitting
	theta   []float64
	known   known
}

// Request says what to fit to which observations.
type Request struct {
	Cluster      *cluster.Cluster
	Observations []Observation
	Names        []string
	// Least is between 0 and 1. The observations must remove at least this part of a number's uncertainty, or the
	// number keeps its first value.
	Least float64
	// Fitted is called after each fit with the number of fits done and their total. The first fit is to all
	// observations.
	Fitted func(done, of int)
}

// Run fits numbers to observations. If ctx ends, it returns the cause.
func Run(ctx context.Context, r Request) (*Fit, error) {
	c, all := r.Cluster, r.Observations
	if len(all) == 0 {
		return nil, errors.New("calibrate: there are no observations")
	}
	if c.DeviceTypes[c.Devices[0]].Kernels == nil {
		return nil, fmt.Errorf("calibrate: device type %s has no kernels to fit; build it on one that has, like {like: "+
			"a100-80gb}", c.Devices[0])
	}
	f := fitting{ctx: ctx, c: c}
	for _, name := range r.Names {
		n, err := describe(c, name)
		if err != nil {
			return nil, err
		}
		f.numbers = append(f.numbers, n)
	}
	groups := folds(all)
	tell := func(done int) {
		if r.Fitted != nil {
			r.Fitted(done, 1+len(groups))
		}
	}
	before, err := f.residuals(all, make([]float64, len(f.numbers)))
	if err != nil {
		return nil, err
	}
	out, err := fitted(f, all, r.Least)
	if err != nil {
		return nil, err
	}
	out.Before = meanError(before)
	tell(1)
	if len(groups) < 2 {
		return out, nil
	}
	var errs []float64
	for i, held := range groups {
		r, err := without(f, all, held, r.Least)
		if err != nil {
			return nil, err
		}
		errs = append(errs, r...)
		tell(2 + i)
	}
	out.HeldOut, out.Folds = meanError(errs), len(groups)
	return out, nil
}

// fitted fits all numbers. Numbers that the observations barely determine then get their first values back, and the
// others are fitted again.
func fitted(f fitting, all []Observation, least float64) (*Fit, error) {
	out := &Fit{HeldOut: math.NaN(), Numbers: slices.Clone(f.numbers)}
	f.numbers = out.Numbers
	start := make([]float64, len(f.numbers))
	if err := out.settle(&f, all, start); err != nil {
		return nil, err
	}
	if some := f.holding(out.Numbers, least); some != nil {
		if err := out.settle(some, all, start); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// settle fits to all observations, and fills in the report of the fit.
func (out *Fit) settle(f *fitting, all []Observation, start []float64) error {
	theta, err := f.fit(all, start)
	if err != nil {
		return err
	}
	values := map[string]float64{}
	for i := range theta {
		n := &out.Numbers[i]
		n.After = f.rounded(i, theta[i])
		theta[i], values[n.Name] = math.Log(n.After/n.Before), n.After
	}
	out.Cluster, out.theta, out.fitting = with(f.c, values), theta, *f
	out.fitting.numbers = out.Numbers
	after, err := f.residuals(all, theta)
	if err != nil {
		return err
	}
	jacobian, err := f.jacobian(all, theta, after)
	if err != nil {
		return err
	}
	out.known = out.fitting.after(jacobian, after)
	for i := range out.Numbers {
		out.Numbers[i].Spread = out.known.spread(i)
	}
	out.Residual, out.After = nil, meanError(after)
	for _, r := range after {
		out.Residual = append(out.Residual, math.Exp(r))
	}
	return nil
}

// mostFolds is the largest number of fits for the held-out error.
const mostFolds = 10

// folds divides observations into sets that are held out together.
func folds(all []Observation) (out []map[int]bool) {
	at := map[string]int{}
	name := func(i int) string {
		if all[i].Group != "" {
			return "group " + all[i].Group
		}
		return strconv.Itoa(i)
	}
	for i := range all {
		if _, ok := at[name(i)]; !ok {
			at[name(i)] = len(at)
		}
	}
	out = make([]map[int]bool, min(len(at), mostFolds))
	for i := range all {
		k := at[name(i)] % len(out)
		if out[k] == nil {
			out[k] = map[int]bool{}
		}
		out[k][i] = true
	}
	return out
}

// without fits to the observations that are not held out, and returns the residuals of those that are. The fit begins
// at the first values. The held-out observations have no influence on which numbers keep their first value.
func without(f fitting, all []Observation, held map[int]bool, least float64) ([]float64, error) {
	var rest, out []Observation
	for i, o := range all {
		if held[i] {
			out = append(out, o)
		} else {
			rest = append(rest, o)
		}
	}
	fit, err := fitted(f, rest, least)
	if err != nil {
		return nil, err
	}
	return fit.fitting.residuals(out, fit.theta)
}

// meanError returns the mean of |predicted/measured - 1|, from the logarithms of predicted/measured.
func meanError(logs []float64) float64 {
	sum := 0.0
	for _, r := range logs {
		sum += math.Abs(math.Exp(r) - 1)
	}
	return sum / float64(len(logs))
}
