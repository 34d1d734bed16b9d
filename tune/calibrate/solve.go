package calibrate

import (
	"fmt"
	"math"

	"github.com/millrace-ml/millrace/cluster"
)

// fitting is least squares over the logarithms of numbers, as differences from their first values.
type fitting struct {
	c       *cluster.Cluster
	numbers []Number
}

// value is a number at a difference, within what it may be.
func (f *fitting) value(i int, theta float64) float64 {
	n := &f.numbers[i]
	return min(max(n.Before*math.Exp(theta), n.Least), n.Most)
}

// at is the cluster at differences.
func (f *fitting) at(theta []float64) *cluster.Cluster {
	values := map[string]float64{}
	for i := range f.numbers {
		values[f.numbers[i].Name] = f.value(i, theta[i])
	}
	return with(f.c, values)
}

// residuals are log(predicted/measured).
func (f *fitting) residuals(all []Observation, theta []float64) ([]float64, error) {
	c := f.at(theta)
	out := make([]float64, len(all))
	for i, o := range all {
		v, err := o.Predict(c)
		if err != nil {
			return nil, fmt.Errorf("calibrate: %s: %w", o.Name, err)
		}
		if !(v > 0) || !(o.Measured > 0) {
			return nil, fmt.Errorf("calibrate: %s: predicted %v s, measured %v s; both must be over 0", o.Name, v, o.Measured)
		}
		out[i] = math.Log(v / o.Measured)
	}
	return out, nil
}

// cost is what is minimised.
func (f *fitting) cost(r, theta []float64) (sum float64) {
	for _, v := range r {
		sum += v * v / (Noise * Noise)
	}
	for i, v := range theta {
		by := doubt(f.numbers[i].Name)
		sum += v * v / (by * by)
	}
	return sum
}

// fit minimises, and says how much of each number's uncertainty is gone.
func (f *fitting) fit(all []Observation) (theta, told []float64, err error) {
	n := len(f.numbers)
	theta, told = make([]float64, n), make([]float64, n)
	r, err := f.residuals(all, theta)
	if err != nil {
		return nil, nil, err
	}
	damping := 1e-3
	var normal [][]float64
	for range 30 {
		jacobian, err := f.jacobian(all, theta, r)
		if err != nil {
			return nil, nil, err
		}
		normal = make([][]float64, n)
		gradient := make([]float64, n)
		for i := range n {
			normal[i] = make([]float64, n)
			by := doubt(f.numbers[i].Name)
			gradient[i] = -theta[i] / (by * by)
			for k := range r {
				gradient[i] -= jacobian[i][k] * r[k] / (Noise * Noise)
			}
			for j := range n {
				for k := range r {
					normal[i][j] += jacobian[i][k] * jacobian[j][k] / (Noise * Noise)
				}
			}
			normal[i][i] += 1 / (by * by)
		}
		moved := false
		for range 8 {
			damped := make([][]float64, n)
			for i := range n {
				damped[i] = append([]float64(nil), normal[i]...)
				damped[i][i] *= 1 + damping
			}
			step := solve(damped, gradient)
			next := make([]float64, n)
			for i := range n {
				next[i] = theta[i] + min(max(step[i], -1), 1)
			}
			tried, err := f.residuals(all, next)
			if err != nil {
				return nil, nil, err
			}
			if gain := f.cost(r, theta) - f.cost(tried, next); gain > 0 {
				moved = gain > 1e-6
				theta, r, damping = next, tried, damping/4
				break
			}
			damping *= 8
		}
		if !moved {
			break
		}
	}
	for i := range n { // the posterior's variance is the inverse's diagonal, the prior's doubt squared
		unit := make([]float64, n)
		unit[i] = 1
		told[i] = 1 - math.Sqrt(max(0, solve(normal, unit)[i]))/doubt(f.numbers[i].Name)
		told[i] = min(max(told[i], 0), 1)
	}
	return theta, told, nil
}

// jacobian is the change of residuals with each number, by differences.
func (f *fitting) jacobian(all []Observation, theta, r []float64) ([][]float64, error) {
	const small = 1e-3
	out := make([][]float64, len(theta))
	for i := range theta {
		moved := append([]float64(nil), theta...)
		moved[i] += small
		next, err := f.residuals(all, moved)
		if err != nil {
			return nil, err
		}
		out[i] = make([]float64, len(r))
		for k := range r {
			out[i][k] = (next[k] - r[k]) / small
		}
	}
	return out, nil
}

// solve is x of a x = b, by elimination with pivots; a is symmetric and positive.
func solve(a [][]float64, b []float64) []float64 {
	n := len(b)
	m := make([][]float64, n)
	for i := range n {
		m[i] = append(append([]float64(nil), a[i]...), b[i])
	}
	for i := range n {
		pivot := i
		for k := i + 1; k < n; k++ {
			if math.Abs(m[k][i]) > math.Abs(m[pivot][i]) {
				pivot = k
			}
		}
		m[i], m[pivot] = m[pivot], m[i]
		for k := i + 1; k < n; k++ {
			by := m[k][i] / m[i][i]
			for j := i; j <= n; j++ {
				m[k][j] -= by * m[i][j]
			}
		}
	}
	x := make([]float64, n)
	for i := n - 1; i >= 0; i-- {
		x[i] = m[i][n]
		for j := i + 1; j < n; j++ {
			x[i] -= m[i][j] * x[j]
		}
		x[i] /= m[i][i]
	}
	return x
}
