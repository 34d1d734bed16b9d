// Package timing measures what a model costs through a Timer, and keeps what was measured so that it lasts.
//
// In: a model, a Timer (package measure's, on the code that trains) and a Record of what was measured before,
// which may be empty. Out: the Record with what was missing, and a profile made from it. Refused: records of
// another model, of another version, damaged files, sizes and passes below 1.
//
// A Record holds for one model on one kind of machine, with so many workers computing at once on so many
// threads each. What layers cost depends on nothing else but the micro-batch: not on the batch, not on how many
// workers wait for a core, not on the data. Updates depend on the optimizer too, and are kept for each. What the
// wire costs depends on no model; a Links holds it for a machine.
//
// What is measured at once is a sitting: rounds, in each of which every size has its turn. A machine that others
// use has another pace every second, and another one every hour; sizes are compared within rounds, and sittings
// by the sizes that they have in common. A sitting over new sizes alone therefore visits a known one too.
//
// Whoever drives it keeps the Record wherever it lasts, each time Extend says that there is more in it; lets no
// two sittings go on at once on one machine; and gives a new Machine name to whatever computes in another time.
package timing
