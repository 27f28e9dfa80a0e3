package egress

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// testTime is a time that tests have no reason to care about.
var testTime = time.UnixMilli(1614265330000).UTC()

// receiptOutbox answers at once: what is measured is the intake alone.
type receiptOutbox struct{ receipt Receipt }

func (o receiptOutbox) Accept(context.Context, *Event, []Target) (Receipt, error) {
	return o.receipt, nil
}

// discardAnswer is a ResponseWriter that costs nothing.
type discardAnswer struct {
	header http.Header
	status int
}

func (d *discardAnswer) Header() http.Header         { return d.header }
func (d *discardAnswer) Write(b []byte) (int, error) { return len(b), nil }
func (d *discardAnswer) WriteHeader(status int)      { d.status = status }

func BenchmarkIntake(b *testing.B) {
	data := `{"id":"in_1","lines":[` + strings.TrimSuffix(strings.Repeat(`{"amount":1250,"currency":"eur","text":"a line of it"},`, 18), ",") + `]}`
	for _, bb := range []struct {
		name, path, contentType, body string
	}{
		{"json", eventsPath, "application/json", `{"type":"invoice.paid","data":` + data + `}`},
		{"raw", "/v1/endpoints/all/events", "application/json", data},
	} {
		b.Run(bb.name, func(b *testing.B) {
			benchmarkIntake(b, bb.path, bb.contentType, bb.body)
		})
	}
}

func benchmarkIntake(b *testing.B, path, contentType, body string) {
	endpoints := intakeEndpoints()
	in := NewIntake(IntakeConfig{
		Outbox: receiptOutbox{Receipt{EventID: "evt_0000000000000000000000000g", Deliveries: []ReceiptDelivery{{ID: DeliveryID{Event: 1, Endpoint: 1}, Endpoint: "acme"},
			{ID: DeliveryID{Event: 1, Endpoint: 2}, Endpoint: "all"}}}},
		Endpoints: func() *Endpoints { return endpoints },
		Token:     func() []byte { return nil },
	})
	r := intakePost(path, "", "Content-Type", contentType, "User-Agent", "app/1", "Accept", "*/*", "Content-Length", "1", "Idempotency-Key", "k-1")
	text := strings.NewReader(body)
	r.Body, r.ContentLength = io.NopCloser(text), int64(len(body))
	w := &discardAnswer{header: make(http.Header)}
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		text.Reset(body)
		if in.ServeHTTP(w, r); w.status != http.StatusAccepted {
			b.Fatal(w.status)
		}
	}
}
