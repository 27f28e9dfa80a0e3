// Package egress is the outbound half: the app posts an event to localhost and is done.
//
//	app ──▶ Intake ──▶ Outbox (event and its deliveries on disk) ──▶ 202
//	                      │
//	                      ▼
//	               Dispatcher: who is due, in turn, bounded ──▶ Sender: sign, filter, POST ──▶ the endpoint
//	                      ▲                                        │
//	                      └── Outbox (attempt logged, state moved) ◀── Decide: the one table from outcome to what follows
//
// An event is one fact with an id and a type. It becomes one delivery for each endpoint that wants it, and a delivery
// becomes attempts until one of them succeeds:
//
//	WAITING ──▶ SENDING ──▶ DELIVERED
//	   ▲           │  ├───▶ DEAD        out of attempts, or ended by the receiver; redeliver makes it WAITING again
//	   └───────────┘  └───▶ WAITING     until it is due again
//
//	PARKED: WAITING while its endpoint is disabled or paused.   CANCELLED: its endpoint was removed.
//	DISCARDED: a person ended it.
//
// Events with the same Event.Order go to an endpoint one after the other: one is due, the others are WAITING behind it until
// it has come to its end; what a dead letter means for them is BoltOutboxConfig.StopOnDead's to say. Two outboxes lie in
// one store, each in a space of its own (BoltOutboxConfig.Space), and an operation of somebody else's on that store puts an
// event in its own transaction (BoltOutbox.Prepare).
//
// What is promised: an event that was answered 202 is on disk with all its deliveries, and each of them is delivered,
// dead, cancelled or discarded in the end, whatever dies in between. A delivery is in flight until its attempt is on
// disk; a kill repeats at most what was in flight, under the same webhook-id. Nothing is sent to an address that the
// address filter (package netguard) did not judge.
package egress
