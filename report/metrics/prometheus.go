package metrics

import (
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Prometheus is a Sink that keeps the newest values for a server to fetch. It has a registry of its own, so that
// several runs in one process do not collide. It has a field for each metric.
type Prometheus struct {
	registry     *prometheus.Registry
	workers      []Worker
	loss         prometheus.Gauge
	learningRate prometheus.Gauge
	norm         prometheus.Gauge
	stepSeconds  prometheus.Histogram
	throughput   prometheus.Gauge
	bubble       prometheus.Gauge
	step         prometheus.Gauge
	steps        prometheus.Counter
	samples      total
	busy         byWorker
	peak         byWorker
	live         byWorker
	sent         byWorker
	received     byWorker
	straggler    *prometheus.GaugeVec
	evalLoss     prometheus.Gauge
	evalAccuracy prometheus.Gauge
	reported     *prometheus.GaugeVec
	apart        prometheus.Gauge
	shown        map[prometheus.Collector]bool // metrics that have had a value
}

// total is a counter that follows a sum which is computed elsewhere; `at` is the last sum.
type total struct {
	prometheus.Counter
	at float64
}

// reach raises the counter to a sum. It ignores a sum that is no larger than before.
func (t *total) reach(sum float64) {
	if sum > t.at {
		t.Add(sum - t.at)
		t.at = sum
	}
}

// byWorker exports one value for each worker and the sum of these values, either as gauges or as counters. The fields
// of the other kind are not used.
type byWorker struct {
	gauges   *prometheus.GaugeVec
	gauge    prometheus.Gauge
	counters *prometheus.CounterVec
	totals   map[int]*total
	total    total
}

// NewPrometheus makes the metrics with these labels (model, run). Metrics by worker also have the worker's labels.
func NewPrometheus(labels map[string]string, workers []Worker) *Prometheus {
	p := &Prometheus{registry: prometheus.NewRegistry(), workers: workers, shown: map[prometheus.Collector]bool{}}
	// laterGauge and laterCounter make metrics that are shown only from their first value on; steps_total is shown from
	// the start. Before the first value, a 0 would look like a measurement.
	laterGauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "millrace", Name: name, Help: help, ConstLabels: labels})
	}
	laterCounter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "millrace", Name: name, Help: help,
			ConstLabels: labels})
	}
	names := []string{"worker", "host", "stage"}
	gauges := func(name, help string) *prometheus.GaugeVec {
		g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "millrace", Name: name, Help: help, ConstLabels: labels},
			names)
		p.registry.MustRegister(g)
		return g
	}
	gaugeOfAll := func(name, of, all string) byWorker {
		return byWorker{gauges: gauges("worker_"+name, of), gauge: laterGauge(name, all)}
	}
	counterOfAll := func(name, of, all string) byWorker {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "millrace", Name: "worker_" + name, Help: of,
			ConstLabels: labels}, names)
		p.registry.MustRegister(c)
		return byWorker{counters: c, totals: map[int]*total{}, total: total{Counter: laterCounter(name, all)}}
	}
	p.step = laterGauge("step", "Number of the newest step, from 1.")
	p.steps = laterCounter("steps_total", "Steps done by this process.")
	p.registry.MustRegister(p.steps)
	p.samples = total{Counter: laterCounter("samples_total", "Samples trained on since the run began.")}
	p.loss = laterGauge("loss", "Mean loss of the newest step.")
	p.learningRate = laterGauge("learning_rate", "Learning rate of the newest step.")
	p.norm = laterGauge("gradient_norm", "Global gradient norm of the newest step, before clipping.")
	p.throughput = laterGauge("samples_per_second", "Samples per second of the newest step.")
	p.bubble = laterGauge("bubble_ratio", "Part of the workers' time in the newest step in which they did not compute.")
	p.busy = gaugeOfAll("busy_seconds", "Time the worker computed in the newest step.",
		"Time all workers computed in the newest step.")
	p.peak = gaugeOfAll("peak_memory_bytes", "Most bytes the worker has held so far.",
		"Most bytes each worker has held so far, summed.")
	p.live = gaugeOfAll("live_memory_bytes", "Bytes the worker held behind the newest step.",
		"Bytes all workers held behind the newest step.")
	p.sent = counterOfAll("sent_bytes_total", "Bytes the worker sent to others.", "Bytes workers sent to each other.")
	p.received = counterOfAll("received_bytes_total", "Bytes that came to the worker from others.",
		"Bytes that came to workers from each other.")
	p.straggler = gauges("worker_straggler_ratio", "Of a straggler: how many times as long as by its profile it computed.")
	p.evalLoss = laterGauge("evaluation_loss", "Mean loss on the held-out set.")
	p.evalAccuracy = laterGauge("evaluation_accuracy_ratio", "Part of the held-out predictions that was right.")
	p.reported = prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "millrace", Name: "evaluation_reported",
		Help: "What the model yields behind its loss, on the held-out set.", ConstLabels: labels}, []string{"name"})
	p.registry.MustRegister(p.reported)
	p.apart = laterGauge("reference_apart_ratio", "How far the reference of elastic averaging is from the average of "+
		"its pipelines, as a part of the largest parameter.")
	p.stepSeconds = prometheus.NewHistogram(prometheus.HistogramOpts{
		Namespace: "millrace", Name: "step_seconds", Help: "Length of a step.", ConstLabels: labels,
		Buckets: prometheus.ExponentialBuckets(0.001, 2, 18),
	})
	p.registry.MustRegister(p.stepSeconds)
	return p
}

func (p *Prometheus) labels(worker int) []string {
	var at Worker
	if worker < len(p.workers) {
		at = p.workers[worker]
	}
	return []string{strconv.Itoa(worker), at.Host, at.Stage}
}

// take sets the value of each worker, and the sum of all.
func take[T int64 | float64](p *Prometheus, b *byWorker, values []T) {
	sum := 0.0
	for w, v := range values {
		sum += float64(v)
		switch {
		case b.gauges != nil:
			b.gauges.WithLabelValues(p.labels(w)...).Set(float64(v))
			continue
		case b.totals[w] == nil:
			b.totals[w] = &total{Counter: b.counters.WithLabelValues(p.labels(w)...)}
		}
		b.totals[w].reach(float64(v))
	}
	switch {
	case len(values) == 0:
	case b.gauges != nil:
		b.gauge.Set(sum)
		p.appear(b.gauge)
	default:
		b.total.reach(sum)
		p.appear(b.total.Counter)
	}
}

// Step sets the values of a step.
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
	if v.Samples > 0 {
		p.samples.reach(float64(v.Samples))
		p.appear(p.samples.Counter)
	}
	take(p, &p.busy, v.BusyS)
	take(p, &p.peak, v.PeakBytes)
	take(p, &p.live, v.LiveBytes)
	take(p, &p.sent, v.SentBytes)
	take(p, &p.received, v.ReceivedBytes)
	p.straggler.Reset()
	for w, times := range v.Stragglers {
		p.straggler.WithLabelValues(p.labels(w)...).Set(times)
	}
	return nil
}

// Evaluation sets the values of an evaluation.
func (p *Prometheus) Evaluation(v EvaluationValues) error {
	p.evalLoss.Set(v.Loss)
	p.appear(p.evalLoss)
	if v.Accuracy != nil {
		p.evalAccuracy.Set(*v.Accuracy)
		p.appear(p.evalAccuracy)
	}
	p.reported.Reset()
	for name, value := range v.Reported {
		if value != nil {
			p.reported.WithLabelValues(name).Set(*value)
		}
	}
	if v.Apart != nil {
		p.apart.Set(*v.Apart)
		p.appear(p.apart)
	}
	return nil
}

// appear registers a metric at its first value.
func (p *Prometheus) appear(c prometheus.Collector) {
	if !p.shown[c] {
		p.shown[c] = true
		p.registry.MustRegister(c)
	}
}

// Close does nothing: the last values can be fetched until the server stops.
func (p *Prometheus) Close() error { return nil }

// Handler answers a scrape. The caller serves it, usually at /metrics.
func (p *Prometheus) Handler() http.Handler {
	return promhttp.HandlerFor(p.registry, promhttp.HandlerOpts{EnableOpenMetrics: true})
}
