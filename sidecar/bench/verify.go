package main

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sidehook/sidehook/extauthz"
	"github.com/sidehook/sidehook/internal/signature"
	"github.com/sidehook/sidehook/sidecar/config"
)

const (
	// verifyRuns is how many verifications are timed as one, verifyRounds how often the two sides take turns. A turn is
	// shorter than a time slice of the kernel, so that most of them are not interrupted.
	verifyRuns   = 200
	verifyRounds = 501
)

// verify compares the check of one signature with the HMAC that it cannot do without.
func verify(_ context.Context, _ settings, b bounds, folder string, out *report) error {
	table, err := loadTable(folder)
	if err != nil {
		return err
	}
	source := table.Named(sourceName)
	now := time.Now()
	sign := newSigner()
	m, body := sign.sign(now), sign.body
	head := []byte(m.id + "." + m.seconds + ".")
	mac := hmac.New(sha256.New, hookKey)
	mac.Write(head)
	mac.Write(body)
	want := mac.Sum(nil)
	msg := &signature.Message{Method: "POST", Target: hookPath, Body: body, Header: []signature.Field{
		{Name: "content-type", Value: "application/json"},
		{Name: "webhook-id", Value: m.id},
		{Name: "webhook-timestamp", Value: m.seconds},
		{Name: "webhook-signature", Value: m.signature},
	}}
	if v := source.Verifier.Verify(msg, source.Keys, now, source.Tolerance); v.Reason != signature.ReasonOK || v.ID != m.id {
		return fmt.Errorf("a good message is refused: %v", v.Reason)
	}
	good := true
	bare := func() {
		mac := hmac.New(sha256.New, hookKey)
		mac.Write(head)
		mac.Write(body)
		good = good && hmac.Equal(mac.Sum(nil), want)
	}
	ours := func() {
		good = good && source.Verifier.Verify(msg, source.Keys, now, source.Tolerance).Reason == signature.ReasonOK
	}
	var ratios, bareTimes, ourTimes []float64
	for range verifyRounds {
		b, o := timeRuns(bare), timeRuns(ours)
		bareTimes, ourTimes, ratios = append(bareTimes, b), append(ourTimes, o), append(ratios, o/b)
	}
	bareAllocs, ourAllocs := testing.AllocsPerRun(1000, bare), testing.AllocsPerRun(1000, ours)
	if !good {
		return errors.New("a good message was refused")
	}
	out.printf("a body of %d bytes: %.2f µs and %.0f allocations, bare crypto/hmac %.2f µs and %.0f\n", len(body),
		median(ourTimes), ourAllocs, median(bareTimes), bareAllocs)
	out.add(figure{name: "verify HMAC-SHA256", got: fmt.Sprintf("%.2f µs", median(ourTimes)),
		yardstick: fmt.Sprintf("crypto/hmac %.2f µs", median(bareTimes)), value: median(ratios), bound: b.verify, unit: " times"})
	out.add(figure{name: "verify, allocations beyond", got: fmt.Sprintf("%.0f", ourAllocs),
		yardstick: fmt.Sprintf("crypto/hmac %.0f", bareAllocs), value: ourAllocs - bareAllocs, bound: b.verifyAllocs})
	return nil
}

// timeRuns returns the time of one run in µs.
func timeRuns(f func()) float64 {
	began := time.Now()
	for range verifyRuns {
		f()
	}
	return microseconds(time.Since(began)) / verifyRuns
}

// loadTable returns the benchmark's one source as the configuration makes it.
func loadTable(folder string) (*extauthz.Sources, error) {
	written, err := configure(folder, nil, nil)
	if err != nil {
		return nil, err
	}
	cfg, err := config.Load(written.config)
	if err != nil {
		return nil, err
	}
	return cfg.Gate.Table, nil
}
