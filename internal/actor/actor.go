// Package actor carries who calls the admin API from its listener to the audit lines of what it serves.
package actor

import "context"

// Unknown is who calls where nobody has said.
const Unknown = "unknown"

type key struct{}

// With returns a ctx that names who calls, for the audit log: an address, never a secret.
func With(ctx context.Context, who string) context.Context {
	return context.WithValue(ctx, key{}, who)
}

// From returns who With named, or Unknown.
func From(ctx context.Context) string {
	if who, ok := ctx.Value(key{}).(string); ok {
		return who
	}
	return Unknown
}
