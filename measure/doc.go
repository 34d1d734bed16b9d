// Package measure times the cost of layers on this host, for package profile, with the code that trains.
//
// Input: an engine, samples, an optimizer, and a function that trains a Pipeline; all four are required. Output: a
// Timer with the timings of layers, updates and transfers that timing.Measure needs.
//
// A crew has workers as in a run: locked threads, each with the whole model on its own device, all computing at once.
// The package knows neither plans nor schedules. From the Timelines of Pipelines it finds how much longer instructions
// take than their layers.
package measure
