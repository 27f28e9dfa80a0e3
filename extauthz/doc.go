// Package extauthz is the inbound half of sidehook: Envoy asks, we verify, remember and answer.
//
// # The life of an inbound event
//
// A sender posts a webhook to the app's Envoy. Before Envoy lets the request through it asks the gate
// (envoy.service.auth.v3.Authorization/Check), and the gate goes through these steps; the first that has an answer
// ends them.
//
//	CheckRequest
//	  | fill, decode          the message in plain terms (request)
//	  | flights.do            the same Check again, while the first runs: the first one's answer
//	  | table.route           whose is it? the route's word, else the raw path; other readings of it must not disagree
//	  | bound.inspect         upgrades, size, and every way in which a mesh loses a body
//	  | bound.examine         signature, time, event id; a provider's handshake is answered here
//	  | Server.settle         REPORT lets pass; a paused source says 503
//	  | Server.admit          the event id is claimed: on disk before we answer
//	  v
//	decision                  counted, logged, and told to Envoy: code 0 and our headers, or code 7 and an answer
//
// Then Envoy sends the request to the app, and tells us how that ended (Confirm): by its access log, or by ext_proc
// before the sender sees the app's answer.
//
// # STORE
//
// A source in STORE does not pass its requests on. Its claim takes no lease: the event, with method, path, body and the
// headers that are kept (Source.KeptHeaders), goes to the Keeper in the claim's own transaction, the sender is answered, and the
// id is STORED for good. What becomes of the event is the Keeper's to know. Package sidecar makes the Keeper of an
// egress.BoltOutbox in a space of its own of the same store, in which a source is an endpoint, and lets an egress.Dispatcher bring
// the events to the app as Source.DeliveryRequest makes them; so this package never imports egress, and what queues, holds,
// retries and shows deliveries to customers is the same code.
//
// # Tenants
//
// One source may serve many customers. Its path then names the tenant, and the folder in Source.Tenants holds a secret for
// each: a name without a file is refused before any signature is looked at, and is not kept, so that strangers fill no
// memory; the keys of those that have one are kept, and their files looked at again once a second at most, by the request
// that comes first. A message may also name its tenant itself (Source.Tenant), where the signature covers it; it is read
// after the verification, and must be the path's. The tenant is a part of the event's key, and of the second key.
//
// # States of an event id
//
//	            Claim                 2xx by the app
//	(none) ------------> PENDING -----------------------> DONE --- retention ---> (none)
//	   ^                  |   |
//	   |  app refused,    |   | nobody knows: client gone, reset, timeout, silence
//	   |  never asked,    |   v
//	   +--- cancelled ----+  on_unknown: RETRY   free again when the lease ends
//	                         on_unknown: HOLD    UNKNOWN until a person, or a late 2xx, settles it
//
//	(none) ------------> STORED ---- its delivery: DELIVERING, DONE, DEAD, DISCARDED; ORPHANED without its source
//
//	(none) ------------> IGNORED | STALE | DUPLICATE_CHANGE --- retention ---> (none)
//
// An event that a rule of its source keeps from the app is not claimed: its id becomes IGNORED where the source's types leave it
// out, or it is of the sender's test mode and the source is live only; STALE where the app has its object in a newer version
// (Source.Version); DUPLICATE_CHANGE where the app has the change by another event (Source.Change). It is free again once the
// rule is gone, or for one delivery after a person released it. What is known of an object, and which claim brought a change or
// an event of a request that carries several, is kept beside the rows and read and written in the transaction of the claim.
//
// A PENDING claim bears a random token that only Envoy's report of this very request can know. Another token changes
// nothing, so that a late failure of an older lease cannot free a younger one; a late 2xx of the token that held the
// claim last still makes it DONE.
//
// # What is promised
//
//   - When Check returns code 0 for a verified event, its claim is on disk, and Envoy had not hung up when the answer
//     was made. Within one store and one lease one Check passes per id.
//   - When Check returns 200 stored, the event is on disk, and will be delivered, or be a dead letter, or be ended by a person.
//   - When Check returns 200 duplicate, the app has answered an earlier delivery of the id with 2xx, or the event is stored, and
//     that is on disk.
//   - When Check returns 200 ignored, the message is verified and, where it has an id, that is on disk.
//   - When Check returns 200 stale, the app has answered an event of the same object, and no older one, with 2xx, or that is
//     kept for it; when it returns 200 duplicate_change, one of the same change; and that is on disk.
//   - When Check returns 401, the bytes that were judged are those that the sender sent. Where the mesh lost or changed
//     them the answer is 500 body_not_forwarded.
//   - When Check returns 503, nothing was decided: the sender shall come again. A fault of ours is never a 401, never a
//     200 and never a pass.
//   - A Check that is cancelled does not pass. The claim that it had taken is released.
//
// The app may see an id again after an end that nobody knows; x-sidehook-event-id is the key for its own transaction.
//
// # Locks
//
// Server.swapping is taken before gateMetrics.mu. All others are leaves: nothing is called under them that locks.
package extauthz
