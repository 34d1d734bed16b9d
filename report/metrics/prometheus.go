package metrics

import (
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Prometheus is a Sink that keeps the newest values for a server to fetch. It has a
// registry of its own, so several runs in one process do not meet.
type Prometheus struct {
	registry     *prometheus.Registry
	loss         prometheus.Gauge
	learningRate prometheus.Gauge
	norm         prometheus.Gauge
	stepSeconds  prometheus.Histogram
	throughput   prometheus.Gauge
	bubble       prometheus.Gauge
	step         prometheus.Gauge
	steps        prometheus.Counter
	sent         prometheus.Counter
	busy         *prometheus.GaugeVec
	peak         *prometheus.GaugeVec
	evalLoss     prometheus.Gauge
	evalAccuracy prometheus.Gauge
	apart        prometheus.Gauge
	shown        map[prometheus.Collector]bool // of those that appear later
}

// NewPrometheus makes the metrics, each with these labels (model, run).
func NewPrometheus(labels map[string]string) *Prometheus {
	p := &Prometheus{registry: prometheus.NewRegistry(), shown: map[prometheus.Collector]bool{}}
	// Later ones appear with their first value: a 0 that nobody measured would be a lie.
	laterGauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "millrace", Name: name, Help: help, ConstLabels: labels})
	}
	laterCounter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "millrace", Name: name, Help: help,
			ConstLabels: labels})
	}
	counter := func(name, help string) prometheus.Counter {
		c := laterCounter(name, help)
		p.registry.MustRegister(c)
		return c
	}
	byWorker := func(name, help string) *prometheus.GaugeVec {
		g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "millrace", Name: name, Help: help, ConstLabels: labels},
			[]string{"worker"})
		p.registry.MustRegister(g)
		return g
	}
	p.step = laterGauge("step", "Number of the newest step, from 0.")
	p.steps = counter("steps_total", "Steps done by this process.")
	p.loss = laterGauge("loss", "Mean loss of the newest step.")
	p.learningRate = laterGauge("learning_rate", "Learning rate of the newest step.")
	p.norm = laterGauge("gradient_norm", "Global gradient norm of the newest step, before clipping.")
	p.throughput = laterGauge("samples_per_second", "Samples per second of the newest step.")
	p.bubble = laterGauge("bubble_ratio", "Part of the workers' time in the newest step in which they did not compute.")
	p.sent = laterCounter("bytes_sent_total", "Bytes that workers sent to each other.")
	p.busy = byWorker("busy_seconds", "Time the worker computed in the newest step.")
	p.peak = byWorker("peak_memory_bytes", "Most bytes the worker has held so far.")
	p.evalLoss = laterGauge("evaluation_loss", "Mean loss on the held-out set.")
	p.evalAccuracy = laterGauge("evaluation_accuracy_ratio", "Part of the held-out predictions that was right.")
	p.apart = laterGauge("reference_apart_ratio", "How far the reference of elastic averaging is from the average of "+
		"its pipelines, as a part of the largest parameter.")
	p.stepSeconds = prometheus.NewHistogram(prometheus.HistogramOpts{
		Namespace: "millrace", Name: "step_seconds", Help: "Length of a step.", ConstLabels: labels,
		Buckets: prometheus.ExponentialBuckets(0.001, 2, 18),
	})
	p.registry.MustRegister(p.stepSeconds)
	return p
}

// Step takes the values of a step.
func (p *Prometheus) Step(v StepValues) error {
	p.step.Set(float64(v.Step))
	p.steps.Inc()
	p.loss.Set(v.Loss)
	p.learningRate.Set(v.LearningRate)
	if v.GradientNorm != 0 {
		p.norm.Set(v.GradientNorm)
		p.appear(p.norm)
	}
	p.stepSeconds.Observe(v.StepS)
	p.throughput.Set(v.SamplesPerSecond)
	p.bubble.Set(v.Bubble)
	for _, c := range []prometheus.Gauge{p.step, p.loss, p.learningRate, p.throughput, p.bubble} {
		p.appear(c)
	}
	if v.SentBytes > 0 {
		p.sent.Add(float64(v.SentBytes))
		p.appear(p.sent)
	}
	for w, s := range v.BusyS {
		p.busy.WithLabelValues(strconv.Itoa(w)).Set(s)
	}
	for w, b := range v.PeakBytes {
		p.peak.WithLabelValues(strconv.Itoa(w)).Set(float64(b))
	}
	return nil
}

// Evaluation takes the values of an evaluation.
func (p *Prometheus) Evaluation(v EvaluationValues) error {
	p.evalLoss.Set(v.Loss)
	p.evalAccuracy.Set(v.Accuracy)
	p.appear(p.evalLoss)
	p.appear(p.evalAccuracy)
	if v.Apart != nil {
		p.apart.Set(*v.Apart)
		p.appear(p.apart)
	}
	return nil
}

// appear shows a metric from its first value on.
func (p *Prometheus) appear(c prometheus.Collector) {
	if !p.shown[c] {
		p.shown[c] = true
		p.registry.MustRegister(c)
	}
}

// Close has nothing to do: the last values stay to be fetched until the server stops.
func (p *Prometheus) Close() error { return nil }

// Handler answers a scrape. The caller serves it, at /metrics by custom.
func (p *Prometheus) Handler() http.Handler {
	return promhttp.HandlerFor(p.registry, promhttp.HandlerOpts{EnableOpenMetrics: true})
}
