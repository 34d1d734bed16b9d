// Package schedule is the Program: training as data, for every worker an ordered list of small instructions.
//
// In: a Program's fields and lists, its text or its JSON, or a plan. Out: Settings for a family; the text;
// what a Program says of itself. It writes no order and proves none. Refused: text and JSON that are no
// Program, with the line or the byte. It knows no clock and no tensor.
//
// # The packages of the room
//
// Each imports those above it in this list, and no other of the room:
//
//	schedule              Program, Instruction, Kind, Key, Cursor, text, policies, placements, Settings
//	schedule/machine      who may start its next instruction; sim, run and check drive it
//	schedule/lower        what an order implies: transfers, collectives, updates, post-validation
//	schedule/check        the proof that a Program can run to its end, and Error, which says where it cannot
//	schedule/family       the orders, a file each, in a registry; a Program from a file can join it
//	schedule/exchange     files of Programs and of other systems' schedules, with the lines of what is wrong
//	schedule/programs     Build, from a plan to a lowered Program; evaluation and checkpoint
//	schedule/scheduletest for tests: random Programs, a replay and a clock of slots written apart, stories
//
// Beside each other, knowing nothing of one another: machine and lower; draw, family and exchange.
// Only schedule, for Settings, and programs take a plan.Plan.
//
// # What a Program says of itself
//
//	lists       Walk and Cursor (with absolute ids), Instructions, Text, WriteJSON
//	places      WorkerOf, StagesOf, ReplicaOf, Pipelines, IsReference
//	messages    Receivers, Senders, Expected, Recipients, Peers; Sent and OtherEnd of an instruction
//	collectives Group, Leader, TiedTo
//	updates     Minibatches, MinibatchOf, PerMinibatch, UpdateSpan, UpdateOf, Covers, Settles, StopUnit,
//	            StreamEnd
//	versions    Streams, Overlaps, Uses, Copies, MostCopies
//	memory      Holdings
//	a server    Served, IsServer, Loose, Trainers, TrainerOf, OtherSide, Settled, Parts: one worker has the
//	            weights, the others fetch them (ASP)
//
// They need fields that check.Validate passes; Uses, Copies and Holdings need a lowered Program that
// check.Check passes.
package schedule
