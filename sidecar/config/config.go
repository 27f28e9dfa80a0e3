package config

import (
	"log/slog"

	"github.com/sidehook/sidehook/egress"
	"github.com/sidehook/sidehook/egress/netguard"
	"github.com/sidehook/sidehook/extauthz"
	"github.com/sidehook/sidehook/internal/secret"
	configv1 "github.com/sidehook/sidehook/pb/sidehook/config/v1"
)

// Config is one configuration, checked and compiled. It is a snapshot: nobody changes it after Load, and a reload builds
// another one. It is safe for concurrent use.
type Config struct {
	// Path is the file that it came from.
	Path string
	// Store says where claims and outbound events are kept; nil where neither half needs one and none is configured.
	Store *Store
	// Gate is nil where no extauthz is configured.
	Gate *Gate
	// Egress is nil where no egress is configured.
	Egress *Egress
	// Keep says how long what has ended is kept: deliveries to endpoints, and those of stored events to the app.
	Keep egress.Keep
	// Notify says who is told when an endpoint fails; nil: nobody.
	Notify *egress.NoticeTargets
	Admin  Admin
	Health Health
	Limits Limits
	Log    Log
	// Message is the configuration with every default filled in and without secrets: a {value} reads "[redacted]".
	// It is what `sidehook check -o yaml` prints (see Effective). The reader must not change it.
	Message *configv1.Config
	// Warnings are what works and what a person should know about, in the order of the file.
	Warnings []Finding
	// Files are all the files that were read for it, the configuration first: a change of one of them is a reason to load
	// again.
	Files []string
	// prints are what was in Files.
	prints prints
}

// Store says where claims and outbound events are kept.
type Store struct {
	// Path is the folder of the store, absolute.
	Path string
	// LimitBytes is what the store may take, whatever is free.
	LimitBytes int64
	// Volume says how long the folder lives; VolumeUnsaid only without egress and without a source in STORE.
	Volume Volume
	// SealKeys seal the secrets that are kept in the store: the first one seals, all of them open. Empty: none is kept.
	SealKeys []secret.Secret
}

// Volume says how long the folder of the store lives.
type Volume uint8

const (
	// VolumeUnsaid: nobody has said it.
	VolumeUnsaid Volume = iota
	// VolumeDurable outlives the pod.
	VolumeDurable
	// VolumeEphemeral ends with the pod, and what was accepted with it.
	VolumeEphemeral
)

// Gate is the inbound half.
type Gate struct {
	// Listen is "host:port" with a loopback host, or "unix:/path".
	Listen string
	// Sources are in the order of the file.
	Sources []*extauthz.Source
	// Open needs no signature.
	Open []extauthz.Match
	// Apps are where the events of sources in STORE are delivered, by the source's name.
	Apps map[string]*App
	// Table is the lookup over Sources and Open.
	Table *extauthz.Sources
	// MaxBodyBytes is the largest body that any source takes, and so what a message from Envoy must have room for.
	MaxBodyBytes int64
}

// Egress is the outbound half.
type Egress struct {
	// Listen is "host:port" with a loopback host, or "unix:/path".
	Listen string
	// Hosts may stand in a Host header beside those of loopback; in lower case.
	Hosts []string
	// Token must be shown by every post; empty: none is asked for.
	Token secret.Secret
	// MaxEventBytes is what a posted event may have.
	MaxEventBytes int64
	// Filter is the global address filter, and that of all endpoints that the API adds.
	Filter *netguard.Filter
	// Policy is how endpoints are tried that say nothing else, and those that the API adds.
	Policy egress.Policy
	// Endpoints are in the order of the file.
	Endpoints []*egress.Endpoint
}

// Admin is the listener of the API.
type Admin struct {
	// Listen is "host:port" with a loopback host, or "unix:/path".
	Listen string
	// Token must be shown by every caller; empty: none is asked for.
	Token secret.Secret
}

// Health is the listener of probes and metrics.
type Health struct {
	// Listen is "host:port", where host may be empty (every address), or "unix:/path".
	Listen string
}

// Limits bounds what is taken in at once.
type Limits struct {
	// BodiesInFlightBytes is the sum of request bodies in memory, over all sources.
	BodiesInFlightBytes int64
	// SourcePercent is the share of the store's limit that one source may take: 1 to 100.
	SourcePercent int
	// EgressInFlight bounds the attempts at one time, all endpoints together.
	EgressInFlight int
	// EgressBodiesBytes is the sum of posted events in memory.
	EgressBodiesBytes int64
	// EndpointDeliveries is how many deliveries may wait at one endpoint.
	EndpointDeliveries int
}

// Log says what is written to stderr.
type Log struct {
	Level slog.Level
	// Text asks for key=value pairs instead of JSON.
	Text bool
}
