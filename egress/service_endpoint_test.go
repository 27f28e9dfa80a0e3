package egress

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	egressv1 "github.com/sidehook/sidehook/pb/sidehook/egress/v1"
)

func testLogger(w io.Writer) *slog.Logger { return slog.New(slog.NewJSONHandler(w, nil)) }

// The whole life of an endpoint. Its secrets are in the two answers that make them, and nowhere else: not in any other
// answer, an error, or a line of the log.
func TestServiceEndpoint(t *testing.T) {
	t.Parallel()
	serviceTest(t, func(t *testing.T, r *serviceRig) {
		const header = "Bearer t0p-s3cr3t-0f-acme"
		add := &egressv1.AddEndpointRequest{Id: "acme", Spec: &egressv1.EndpointSpec{
			Url: "https://acme.example/in/url-t0ken?k=query-t0ken", EventTypes: []string{"ok"}, Owner: "ops@acme.example",
			Headers: []*egressv1.Header{{Name: "Authorization", Value: header}},
			Policy:  &egressv1.DeliveryPolicy{Timeout: durationpb.New(3 * time.Second)},
		}}
		added := ask(t, r.AddEndpoint, add)
		rotated := ask(t, r.RotateEndpoint, &egressv1.RotateEndpointRequest{Id: "acme"})
		if n := strings.Count(r.answers.String(), added.GetSecret()); n != 1 {
			t.Errorf("the secret was answered %d times, want once", n)
		}
		if n := strings.Count(r.answers.String(), rotated.GetSecret()); n != 1 || rotated.GetSecret() == added.GetSecret() {
			t.Errorf("the new secret was answered %d times, want once", n)
		}
		r.answers.buf.Reset()

		refused(t, r.AddEndpoint, add, connect.CodeAlreadyExists, `"acme"`)
		bad := &egressv1.AddEndpointRequest{Id: "b4d", Spec: &egressv1.EndpointSpec{Url: "http://x", Headers: []*egressv1.Header{{Name: "A", Value: header + "\n"}}}}
		refused(t, r.AddEndpoint, bad, connect.CodeInvalidArgument, "headers[0]")
		r.accept(t, "e1", "ok", "acme")
		r.accept(t, "e2", "later", "acme")
		e := ask(t, r.GetEndpoint, &egressv1.GetEndpointRequest{Id: "acme"}).GetEndpoint()
		if e.GetState() != egressv1.EndpointState_ENDPOINT_STATE_ACTIVE || e.GetOrigin() != egressv1.EndpointOrigin_ENDPOINT_ORIGIN_API ||
			!slices.Equal(e.GetHeaderNames(), []string{"Authorization"}) || len(e.GetKeys()) != 2 || e.GetUrl() != add.GetSpec().GetUrl() ||
			e.GetPolicy().GetTimeout().AsDuration() != 3*time.Second || len(e.GetPolicy().GetWaits()) != 9 ||
			e.GetHealth().GetLastSuccessTime() == nil || e.GetHealth().GetFailingSince() == nil {
			t.Errorf("endpoint: %v", e)
		}
		// The old key signs for a day, the new one for good.
		if k := e.GetKeys(); k[0].GetUntilTime() != nil || k[1].GetUntilTime().AsTime().Sub(k[0].GetCreateTime().AsTime()) != 24*time.Hour {
			t.Errorf("keys: %v", k)
		}
		ask(t, r.UpdateEndpoint, &egressv1.UpdateEndpointRequest{
			Id: "acme", Spec: specOf("https://new.example/other-t0ken"), UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"url"}},
		})
		ask(t, r.ListEndpoints, &egressv1.ListEndpointsRequest{})
		ask(t, r.DisableEndpoint, &egressv1.DisableEndpointRequest{Id: "acme"})
		ask(t, r.EnableEndpoint, &egressv1.EnableEndpointRequest{Id: "acme"})
		ask(t, r.TestEndpoint, &egressv1.TestEndpointRequest{Id: "acme"})
		ask(t, r.GetEvent, &egressv1.GetEventRequest{Id: "e2"})
		gone := ask(t, r.RemoveEndpoint, &egressv1.RemoveEndpointRequest{Id: "acme"}).GetEndpoint()
		if gone.GetId() != "acme" {
			t.Errorf("removed: %v", gone)
		}
		refused(t, r.GetEndpoint, &egressv1.GetEndpointRequest{Id: "acme"}, connect.CodeNotFound, `no endpoint "acme"`)

		secrets := []string{"t0p-s3cr3t"}
		for _, s := range []string{added.GetSecret(), rotated.GetSecret()} {
			text := strings.TrimPrefix(s, "whsec_")
			raw, err := base64.StdEncoding.DecodeString(text)
			if err != nil || len(raw) != 32 {
				t.Fatalf("secret of %d bytes: %v", len(raw), err)
			}
			secrets = append(secrets, text[:12], hex.EncodeToString(raw)[:12], fmt.Sprint(raw[:6])[1:12])
		}
		for _, s := range secrets {
			if strings.Contains(r.answers.String(), s) || strings.Contains(r.log.String(), s) {
				t.Errorf("%q is in an answer or in the log", s)
			}
		}
		for _, s := range []string{"url-t0ken", "query-t0ken", "other-t0ken"} {
			if strings.Contains(r.log.String(), s) {
				t.Errorf("%q, of a URL, is in the log", s)
			}
		}
		if !strings.Contains(r.log.String(), "acme.example") || !strings.Contains(r.answers.String(), "url-t0ken") {
			t.Error("the test does not see what is logged and answered")
		}
		var what []string
		for _, line := range r.log.audits(t) {
			word, _, _ := strings.Cut(line, ":")
			what = append(what, word)
		}
		want := []string{"endpoint add", "endpoint rotate", "endpoint update", "endpoint disable", "endpoint enable", "endpoint test", "endpoint remove"}
		if !slices.Equal(what, want) {
			t.Errorf("audit %q, want %q", what, want)
		}
	})
}

func TestServiceEndpointStates(t *testing.T) {
	t.Parallel()
	serviceTest(t, func(t *testing.T, r *serviceRig) {
		id := &egressv1.DisableEndpointRequest{Id: "a"}
		d := ask(t, r.DisableEndpoint, id).GetEndpoint()
		if d.GetState() != egressv1.EndpointState_ENDPOINT_STATE_DISABLED || d.GetHealth().GetDisabled() != egressv1.DisableReason_DISABLE_REASON_PERSON {
			t.Errorf("disabled: %v", d)
		}
		ask(t, r.DisableEndpoint, id)
		r.accept(t, "e1", "ok", "a")
		if n := len(r.sender.events()); n != 0 {
			t.Errorf("%d sent to a disabled endpoint", n)
		}
		ask(t, r.EnableEndpoint, &egressv1.EnableEndpointRequest{Id: "a"})
		r.settle()
		if n := len(r.sender.events()); n != 1 {
			t.Errorf("%d sent after it was enabled, want what waited", n)
		}
		want := []string{
			"endpoint disable: ACTIVE -> DISABLED PERSON", "endpoint disable: DISABLED PERSON -> DISABLED PERSON",
			"endpoint enable: DISABLED PERSON -> ACTIVE",
		}
		if got := r.log.audits(t); !slices.Equal(got, want) {
			t.Errorf("audit %q, want %q", got, want)
		}
		refused(t, r.EnableEndpoint, &egressv1.EnableEndpointRequest{Id: "nobody"}, connect.CodeNotFound, "nobody")
		refused(t, r.EnableEndpoint, &egressv1.EnableEndpointRequest{}, connect.CodeInvalidArgument, "id")

		// The file's endpoints are the file's.
		mask := &fieldmaskpb.FieldMask{Paths: []string{"owner"}}
		refused(t, r.UpdateEndpoint, &egressv1.UpdateEndpointRequest{Id: "a", UpdateMask: mask}, connect.CodeFailedPrecondition, "configuration")
		refused(t, r.RemoveEndpoint, &egressv1.RemoveEndpointRequest{Id: "a"}, connect.CodeFailedPrecondition, "configuration")
		refused(t, r.RotateEndpoint, &egressv1.RotateEndpointRequest{Id: "a"}, connect.CodeFailedPrecondition, "configuration")
		refused(t, r.RotateEndpoint, &egressv1.RotateEndpointRequest{Id: "nobody"}, connect.CodeNotFound, "nobody")
		refused(t, r.RotateEndpoint, &egressv1.RotateEndpointRequest{Id: "a", Overlap: durationpb.New(-time.Second)}, connect.CodeInvalidArgument, "overlap")
		refused(t, r.UpdateEndpoint, &egressv1.UpdateEndpointRequest{Id: "nobody", UpdateMask: mask}, connect.CodeNotFound, "nobody")
		if got := ask(t, r.GetEndpoint, &egressv1.GetEndpointRequest{Id: "a"}).GetEndpoint(); got.GetUrl() != "https://a.example/" || len(got.GetKeys()) != 1 {
			t.Errorf("of the file: %v", got)
		}
	})
}

func TestServiceListEndpoints(t *testing.T) {
	t.Parallel()
	serviceTest(t, func(t *testing.T, r *serviceRig) {
		for i := range 20 {
			// a-… stands between a and b, and its id sorts otherwise than its place in a list with separators.
			ask(t, r.AddEndpoint, &egressv1.AddEndpointRequest{Id: fmt.Sprintf("a-%02d", i), Spec: specOf("https://x.example/")})
		}
		for _, size := range []int32{0, 1, 3, 22, 1000} {
			var ids []string
			req := &egressv1.ListEndpointsRequest{PageSize: size}
			for {
				page := ask(t, r.ListEndpoints, req)
				for _, e := range page.GetEndpoints() {
					ids = append(ids, e.GetId())
				}
				if req.PageToken = page.GetNextPageToken(); req.PageToken == "" {
					break
				}
			}
			if len(ids) != 22 || !slices.IsSorted(ids) || ids[0] != "a" || ids[21] != "b" {
				t.Errorf("in pages of %d: %q", size, ids)
			}
		}
		refused(t, r.ListEndpoints, &egressv1.ListEndpointsRequest{PageSize: -1}, connect.CodeInvalidArgument, "page_size")
		refused(t, r.ListEndpoints, &egressv1.ListEndpointsRequest{PageToken: "x"}, connect.CodeInvalidArgument, "page_token")
	})
}

func TestServiceTestEndpoint(t *testing.T) {
	t.Parallel()
	serviceTest(t, func(t *testing.T, r *serviceRig) {
		ask(t, r.PauseEgress, &egressv1.PauseEgressRequest{})
		res := ask(t, r.TestEndpoint, &egressv1.TestEndpointRequest{Id: "a"})
		if a := res.GetAttempt(); a.GetOutcome() != "delivered" || a.GetStatus() != 200 || a.GetTrigger() != egressv1.AttemptTrigger_ATTEMPT_TRIGGER_TEST {
			t.Errorf("attempt: %v", a)
		}
		sent := r.sender.events()
		if len(sent) != 1 || sent[0].ID != res.GetEventId() || sent[0].Type != "sidehook.test" || sent[0].ContentType != "application/json" {
			t.Fatalf("sent: %+v", sent)
		}
		if strings.ContainsAny(sent[0].ID, " ,.") {
			t.Errorf("id %q is none that an event may have", sent[0].ID)
		}
		var body struct {
			Type      string
			Timestamp time.Time
			Data      map[string]string
		}
		if err := json.Unmarshal(sent[0].Body, &body); err != nil || body.Type != "sidehook.test" || body.Data["endpoint"] != "a" ||
			time.Since(body.Timestamp).Abs() > time.Minute {
			t.Errorf("body %s: %v", sent[0].Body, err)
		}
		if n := len(ask(t, r.ListDeliveries, &egressv1.ListDeliveriesRequest{}).GetDeliveries()); n != 0 {
			t.Errorf("%d deliveries are kept of a test", n)
		}
		refused(t, r.TestEndpoint, &egressv1.TestEndpointRequest{Id: "nobody"}, connect.CodeNotFound, "nobody")
	})
}

// A test must end before the listener cuts the request off, and only a few run at one time.
func TestServiceTestEndpointBounds(t *testing.T) {
	t.Parallel()
	serviceTest(t, func(t *testing.T, r *serviceRig) {
		ends := make(chan error, maxTests)
		s := NewService(ServiceConfig{Registry: r.registry, Switch: r.dispatch, Sender: hangingSender{}})
		req := connect.NewRequest(&egressv1.TestEndpointRequest{Id: "a"})
		start := time.Now()
		for range maxTests {
			go func() {
				_, err := s.TestEndpoint(t.Context(), req)
				ends <- err
			}()
		}
		r.settle()
		if _, err := s.TestEndpoint(t.Context(), req); connect.CodeOf(err) != connect.CodeResourceExhausted {
			t.Errorf("one more: %v, want RESOURCE_EXHAUSTED", err)
		}
		for range maxTests {
			if err := <-ends; connect.CodeOf(err) != connect.CodeDeadlineExceeded {
				t.Errorf("a receiver that hangs: %v, want DEADLINE_EXCEEDED", err)
			}
		}
		if took := time.Since(start); took < testTimeout || took > testTimeout+time.Second {
			t.Errorf("it took %s, want %s", took, testTimeout)
		}
	})
}

// hangingSender is a receiver that says nothing.
type hangingSender struct{}

func (hangingSender) Send(ctx context.Context, _ *Endpoint, _ *Event, _ int) Result {
	<-ctx.Done()
	return Result{Outcome: OutcomeInterrupted}
}
