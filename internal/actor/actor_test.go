package actor

import "testing"

func TestFrom(t *testing.T) {
	t.Parallel()
	if got := From(t.Context()); got != "unknown" {
		t.Errorf("From of a context that names nobody = %q, want unknown", got)
	}
	ctx := With(With(t.Context(), "127.0.0.1:5"), "unix with token")
	if got := From(ctx); got != "unix with token" {
		t.Errorf("From = %q, want who was named last", got)
	}
}
