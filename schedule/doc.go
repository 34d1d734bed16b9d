// Package schedule defines the Program: training as data, with an ordered list of small instructions for every worker.
//
// In: a Program's fields and lists, its text or its JSON, or a plan. Out: Settings for a family, the text, and answers
// to questions about a Program. The package neither generates orders nor checks them. It refuses text and JSON that are
// not a Program, with the line or the byte. It knows nothing of clocks and tensors.
//
// # The packages below schedule
//
// Each of these packages imports only packages that stand above it in this list:
//
//	schedule              Program, Instruction, Kind, Key, Cursor, text, policies, placements, Settings
//	schedule/machine      who may start its next instruction; sim, run and check drive it
//	schedule/lower        what an order implies: transfers, collectives, updates, post-validation
//	schedule/check        the proof that a Program can run to its end, and Error, which says where it cannot
//	schedule/family       the orders, a file each, in a registry; a Program from a file can join it
//	schedule/exchange     files of Programs and of other systems' schedules, with the lines of what is wrong
//	schedule/programs     Build, from a plan to a lowered Program; evaluation and checkpoint
//	schedule/scheduletest for tests: random Programs, and an independent replay and clock of slots
//
// Machine and lower do not import each other, and neither do family and exchange. Only two of the packages use a
// plan.Plan: schedule, for Settings, and programs.
//
// # The methods of Program
//
// The methods by topic:
//
//	instructions of a worker  Walk (and Cursor) with absolute ids, Instructions, Text, WriteJSON
//	stages of workers         WorkerOf, StagesOf, ReplicaOf, Pipelines
//	senders and receivers     Receivers and Recipients of a send, Senders and Expected of a receive, Peers and Share
//	                          of replicas; Sent and OtherEnd of an instruction
//	members of a collective   Group, Leader, TiedTo
//	numbers of updates        Minibatches, MinibatchOf, PerMinibatch, UpdateSpan, UpdateOf, Covers, StopUnit,
//	                          StreamEnd
//	versions of weights       Streams, Overlaps, Needs, Uses, Copies, MostCopies
//	kind of update            Updater, UpdateCost, Defers, ValidatesLater, Settles, Settled, Parts
//	memory                    Holdings
//	elastic averaging         HasReference, IsReference, Beside: the reference of the pipelines
//	parameter server (ASP)    Served, IsServer, Loose, Trainers, TrainerOf, OtherSide: one worker has the weights,
//	                          the others fetch them
//
// The methods need fields that pass check.Validate. Uses, Copies and Holdings need a lowered Program that passes
// check.Check.
package schedule
