package eventtype

import "testing"

func TestMatches(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		pattern, eventType string
		want               bool
	}{
		{"invoice.paid", "invoice.paid", true},
		{"invoice.paid", "invoice.paid.late", false},
		{"invoice.paid", "Invoice.paid", false},
		{"invoice.paid", "", false},
		{"invoice.*", "invoice.paid", true},
		{"invoice.*", "invoice.paid.late", true},
		{"invoice.*", "invoice", false},
		{"invoice.*", "invoice.", false}, // no further segment
		{"invoice.*", "invoices.paid", false},
		{"orders/*", "orders/create", true},
		{"*", "anything", true},
		{"*", "", true},
	} {
		if got := Matches(tt.pattern, tt.eventType); got != tt.want {
			t.Errorf("Matches(%q, %q) = %t, want %t", tt.pattern, tt.eventType, got, tt.want)
		}
	}
}
