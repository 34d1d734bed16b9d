// Package measure times what layers cost on this host, for package profile, on the code that trains.
//
// In: an engine, samples, an optimizer, and a function that trains a Pipeline. Out: a Timer, which gives the
// timings of layers, updates and transfers that timing.Measure asks for. Refused: a Timer without one of
// these.
//
// A crew is workers as a run has them, each a locked thread with the whole model on a device of its own, all
// of them computing at once. It knows neither plans nor schedules: what instructions take beside their layers
// it learns from the Timelines of Pipelines.
package measure
